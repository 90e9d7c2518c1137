"""No test's verdict hangs on how fast the machine is: what would make one is counted, by file.

`tests/waiting.py` has the waits, and the limit that no machine reaches; `tests/virtual_time.py` the
loops whose clock is not the machine's. What is left is in ``REVIEWED``: none of it can fail a test
because the machine is slow. The numbers may only shrink.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEFT_OUT = ("bench", "sim", "scenarios")
"""What measures; what runs on a simulated clock."""
HINT = re.compile(
    r"\bsleep\(|\.time\(\)|monotonic|perf_counter|timeout|max.block|deadline"
    r"|\.(?:result|wait|join|flush|communicate)\([0-9]|(?:seconds|wait_s)=[0-9]"
)
"""A file without any of these need not be parsed."""
LIMIT_S_LEAST = 60
LIMITS = frozenset({"timeout", "timeout_s", "wait_s", "seconds", "timeout_seconds"})
WAITING_CALLS = frozenset(
    {"result", "wait", "join", "flush", "settimeout", "timeout", "communicate"}
)
WITH_SOCKETS = ("chaos", "conformance", "e2e", "k8s", "spark")
"""Where a client waits for another process."""
CLIENT_LIMITS = re.compile(
    r"(?:(?:api|request|socket|transaction).timeout|max.block|login.deadline).ms$"
)
"""Settings that end a call, a transaction or a login of a client, with dots or underscores."""

REVIEWED: dict[str, int] = {
    "chaos/cluster.py": 1,
    "chaos/copy_worker.py": 2,
    "chaos/copying.py": 1,
    "chaos/follow.py": 1,
    "chaos/load.py": 4,
    "chaos/run.py": 1,
    "chaos/sessions.py": 1,
    "chaos/share_copying.py": 3,
    "chaos/sharing.py": 2,
    "chaos/strikes.py": 1,
    "chaos/txn_load.py": 9,
    "conformance/spark/test_kafka_connector.py": 4,
    "conformance/test_kafka_streams.py": 3,
    "e2e/broker_processes.py": 1,
    "e2e/controllers.py": 1,
    "e2e/copy_worker.py": 1,
    "e2e/disk_fixtures.py": 1,
    "e2e/netns_cluster.py": 2,
    "e2e/test_broker_frames.py": 1,
    "e2e/test_broker_wire.py": 1,
    "e2e/test_cli_reassign.py": 1,
    "e2e/test_controller.py": 1,
    "e2e/test_controller_store.py": 2,
    "e2e/test_cuts.py": 4,
    "e2e/test_fuzz.py": 3,
    "e2e/test_late_requests.py": 1,
    "e2e/test_native_client.py": 5,
    "e2e/test_partition_store.py": 3,
    "e2e/test_range_reader.py": 1,
    "e2e/test_sasl.py": 1,
    "e2e/test_sink_batches.py": 1,
    "e2e/test_tls.py": 1,
    "e2e/test_transactions.py": 1,
    "e2e/unique_values.py": 4,
    "e2e/zookeeper.py": 1,
    "k8s/load.py": 1,
    "spark/sink_topics.py": 2,
    "spark/test_sink_batch.py": 1,
    "spark/test_sink_protocol.py": 2,
    "spark/test_submit.py": 2,
    "unit/broker/shell/replication/test_isr_sender.py": 1,
    "unit/broker/shell/listener/test_listener_tls.py": 1,
    "unit/tidemark/cli/dev/test_process.py": 1,
    "unit/tidemark/client/memory_groups.py": 1,
    "unit/tidemark/client/consumer/test_group.py": 4,
    "unit/tidemark/client/producer/test_producer.py": 1,
    "unit/tidemark/runtime/test_coordinator_client.py": 1,
    "unit/tidemark/runtime/test_coordinator_session.py": 1,
    "unit/tidemark/runtime/test_partition_log.py": 2,
    "unit/tidemark/runtime/test_shard_runtime.py": 2,
    "unit/tidemark/runtime/test_transport_queue.py": 2,
    "unit/tidemark/runtime/test_zk_session.py": 1,
    "unit/txn_coordinator/shell/test_marker_sender.py": 3,
    "unit/txn_coordinator/shell/test_node.py": 1,
    "unit/tidemark/runtime/coordinator/test_shards.py": 3,
    "unit/txn_coordinator/test_main.py": 1,
    "virtual_time.py": 1,
    "waiting.py": 2,
}


def names_of(node: ast.expr) -> tuple[str, str]:
    """Of ``time.sleep``: the module and the name."""
    if isinstance(node, ast.Attribute):
        owner = node.value
        return (owner.id if isinstance(owner, ast.Name) else "", node.attr)
    return ("", node.id if isinstance(node, ast.Name) else "")


def is_short(node: ast.expr) -> bool:
    """A number of seconds, more than none, that a busy machine may need."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float) and 0 < node.value < LIMIT_S_LEAST


def reads_a_clock(node: ast.AST) -> bool:
    """``time.monotonic()``, ``loop.time()``."""
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(names_of(one.func)[1] in ("monotonic", "perf_counter", "time") for one in calls)


def is_sleep(call: ast.Call) -> bool:
    """For a while, rather than for the next turn of the loop."""
    if names_of(call.func) not in (("time", "sleep"), ("asyncio", "sleep")):
        return False
    length = call.args[0]
    return not (isinstance(length, ast.Constant) and length.value == 0)


def is_short_limit(call: ast.Call) -> bool:
    """A time-out of a few seconds, or of pytest's own: only a hang may end a test."""
    name = names_of(call.func)[1]
    if ast.unparse(call.func) == "pytest.mark.timeout":
        return True
    given = [keyword.value for keyword in call.keywords if keyword.arg in LIMITS]
    if name in WAITING_CALLS:
        given += call.args[:1]
    return any(is_short(each) for each in given)


def is_deadline(node: ast.BinOp) -> bool:
    """So many seconds from now."""
    return isinstance(node.op, ast.Add) and reads_a_clock(node.left) and is_short(node.right)


def is_upper_bound(node: ast.Compare) -> bool:
    """On how long something took."""
    took = [
        one
        for one in (node.left, *node.comparators[:-1])
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) and reads_a_clock(one.left)
    ]
    return bool(took) and isinstance(node.ops[-1], ast.Lt | ast.LtE)


def settings_in(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of a dictionary, or of the arguments of a call."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, value
    elif isinstance(node, ast.Call):
        yield from ((one.arg, one.value) for one in node.keywords if one.arg is not None)


def short_client_limits(node: ast.AST) -> Iterator[ast.expr]:
    """Limits of calls that a busy machine may need longer for; Spark's options are texts."""
    for name, value in settings_in(node):
        if CLIENT_LIMITS.search(name.replace("__", ".")) and isinstance(value, ast.Constant):
            text = str(value.value)
            if text.isdecimal() and 0 < int(text) < LIMIT_S_LEAST * 1_000:
                yield value


def found_in(path: Path) -> Iterator[str]:
    """Each with its line."""
    text = path.read_text()
    if not HINT.search(text):
        return
    has_sockets = path.relative_to(TESTS).parts[0] in WITH_SOCKETS
    for node in ast.walk(ast.parse(text)):
        for value in short_client_limits(node) if has_sockets else ():
            yield f"{path.relative_to(TESTS)}:{value.lineno}: {ast.unparse(value)}"
        guilty = (
            (isinstance(node, ast.Call) and (is_sleep(node) or is_short_limit(node)))
            or (isinstance(node, ast.BinOp) and is_deadline(node))
            or (isinstance(node, ast.Compare) and is_upper_bound(node))
        )
        if guilty:
            assert isinstance(node, ast.expr)
            yield f"{path.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)[:80]}"


def test_no_verdict_hangs_on_the_clock() -> None:
    paths = (
        path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in LEFT_OUT
    )
    found = [line for path in sorted(paths) for line in found_in(path)]
    counted = Counter(line.partition(":")[0] for line in found)
    more = {name for name in counted if counted[name] > REVIEWED.get(name, 0)}
    assert [line for line in found if line.partition(":")[0] in more] == []
    assert {name: counted[name] for name in REVIEWED} == REVIEWED, (
        "the list may only shrink: lower it"
    )


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(0.1)",
        "asyncio.timeout(5)",
        "future.result(10)",
        "run(argv, timeout=20)",
        "deadline = time.monotonic() + 20",
        "assert time.monotonic() - began < limit",
        "assert 0.3 <= loop.time() - began < 5",
        "pytest.mark.timeout(900)",
    ],
)
def test_what_hangs_on_the_clock_is_seen(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TESTS", tmp_path)
    (tmp_path / "test_it.py").write_text(code)
    assert len(list(found_in(tmp_path / "test_it.py"))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "Producer(address, max_block_ms=500)",
        "{'client.default_api_timeout_ms': '1000'}",
        "driver('q', client__max_block_ms='500')",
        "dict(bootstrap, **{'socket.timeout.ms': 5_000})",
    ],
)
def test_a_client_that_gives_up_soon_is_seen_where_it_has_sockets(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TESTS", tmp_path)
    for folder, count in (("e2e", 1), ("unit", 0)):
        path = tmp_path / folder / "test_it.py"
        path.parent.mkdir()
        path.write_text(code)
        assert len(list(found_in(path))) == count
