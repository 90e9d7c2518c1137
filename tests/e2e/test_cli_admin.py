"""Commands that change and diagnose a cluster, against a real one."""

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from e2e.clusters import START_SECONDS, STOP_SECONDS
from e2e.command_line import COMMAND, Cli
from e2e.processes import running
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    layout = Layout.on_free_ports(directory, brokers=2, controllers=1, txn_coordinators=1)
    cluster = DevCluster(layout, overrides={"broker": {"slow.request.ms": 1}})
    try:
        cluster.start(START_SECONDS)
        yield cluster
    finally:
        cluster.stop(STOP_SECONDS)


@pytest.fixture
def cli(cluster: DevCluster) -> Cli:
    return Cli(cluster)


def create(cli: Cli, topic: str, *words: str) -> None:
    cli.json("topic", "create", topic, *words, *cli.kafka)


@pytest.mark.feature("AD51")
@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("cluster", "brokers"),
        ("cluster", "health"),
        ("group", "list"),
        ("share", "list"),
        ("txn", "list"),
        ("txn", "list", "--hanging"),
        ("config", "list", "--brokers"),
    ],
)
def test_every_format_shows_the_same(cli: Cli, words: tuple[str, ...]) -> None:
    shown = {
        name: cli.run(*words, "-o", name, *cli.kafka).stdout
        for name in ("json", "yaml", "table", "wide")
    }
    assert yaml.safe_load(shown["yaml"]) == json.loads(shown["json"])
    assert shown["table"]
    assert len(shown["wide"]) >= len(shown["table"])


@pytest.mark.feature("AD60")
def test_bytes_that_are_not_utf_8_go_through_every_format(cli: Cli) -> None:
    create(cli, "bytes", "-p", "1")
    cli.json("topic", "produce", "bytes", "-f", "%k{hex}:%v", *cli.kafka, stdin=b"ff00:a:b\n")
    asked = ("topic", "consume", "bytes", "--from", "earliest", "-e", *cli.kafka)
    assert cli.run(*asked, "-f", r"%t %p %o %k %v\n").stdout == b"bytes 0 0 \xff\x00 a:b\n"
    assert cli.run(*asked, "-f", r"%k{base64}=%v{hex};%K").stdout == b"/wA==613a62;2"
    (line,) = cli.run(*asked, "-f", "json").stdout.splitlines()
    assert json.loads(line)["key_base64"] == "/wA="
    (document,) = yaml.safe_load_all(cli.run(*asked, "-o", "yaml").stdout)
    assert document == json.loads(line)


@pytest.mark.feature("AD60")
def test_a_topic_dumped_as_json_can_be_sent_into_another_one(cli: Cli) -> None:
    for name in ("from-here", "to-there"):
        create(cli, name, "-p", "3")
    lines = b"".join(b"k%d:v%d\n" % (number, number) for number in range(50))
    options = ("-k", ":", "-H", "source=test", *cli.kafka)
    cli.json("topic", "produce", "from-here", *options, stdin=lines)
    everything = ("--from", "earliest", "-e", "-f", "json", *cli.kafka)
    dump = cli.run("topic", "consume", "from-here", *everything).stdout
    again = ("-f", "json", "--keep-partitions", *cli.kafka)
    cli.json("topic", "produce", "to-there", *again, stdin=dump)
    copied = [json.loads(line) | {"topic": "from-here"} for line in everything_of(cli, "to-there")]
    assert sorted(map(repr, copied)) == sorted(repr(json.loads(line)) for line in dump.splitlines())


@pytest.mark.feature("AD27", "AD53")
def test_a_broker_that_is_alive_is_not_unregistered(cli: Cli) -> None:
    alive, unknown = (
        cli.run("cluster", "unregister", number, "--yes", *cli.kafka) for number in ("2", "77")
    )
    assert b"broker 2 is alive, and would register again; stop it first" in alive.stderr
    assert b"Broker ID 77 is not currently registered (BROKER_ID_NOT_REGISTERED)" in unknown.stderr
    assert b"try: tidemark cluster brokers" in unknown.stderr
    assert (alive.returncode, unknown.returncode) == (ExitCode.FAILED, ExitCode.FAILED)


def everything_of(cli: Cli, topic: str) -> list[bytes]:
    asked = ("topic", "consume", topic, "--from", "earliest", "-e", "-f", "json", *cli.kafka)
    return cli.run(*asked).stdout.splitlines()


@pytest.mark.feature("AD60")
def test_a_line_that_is_no_record_ends_produce_with_its_number(cli: Cli) -> None:
    create(cli, "broken", "-p", "1")
    done = cli.run("topic", "produce", "broken", "-f", "json", *cli.kafka, stdin=b'{}\n{"a\n')
    assert done.returncode == ExitCode.DATA
    assert b"line 2" in done.stderr


@pytest.mark.feature("AD67")
def test_a_reader_that_closes_the_output_ends_consume_in_silence(cli: Cli) -> None:
    create(cli, "long", "-p", "1")
    cli.json("topic", "produce", "long", *cli.kafka, stdin=b"x" * 100 + b"\n" + b"y\n" * 100_000)
    argv = [*COMMAND, "topic", "consume", "long", "--from", "earliest", *cli.kafka]
    with running(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        consuming.stdout.readline()
        consuming.stdout.close()
        said = consuming.stderr.read()
        assert (consuming.wait(PATIENCE_S), b"Traceback" in said) == (ExitCode.OK, False)


@pytest.mark.feature("AD61")
def test_records_before_an_offset_are_purged_and_a_dry_run_purges_none(cli: Cli) -> None:
    create(cli, "old", "-p", "1")
    cli.json("topic", "produce", "old", *cli.kafka, stdin=b"a\nb\nc\nd\n")
    planned = cli.json("topic", "purge", "old", "--before", "3", "--dry-run", *cli.kafka)
    assert (planned[0]["records"], planned[0]["outcome"]) == (3, "would delete")
    assert len(cli.read("old")) == 4
    done = cli.json("topic", "purge", "old", "--before", "3", "--yes", *cli.kafka)
    assert (done[0]["new_start"], done[0]["records"]) == (3, 3)
    assert [each["value"] for each in cli.read("old")] == ["d"]
    cli.json("topic", "purge", "old", "-y", *cli.kafka)
    (row,) = cli.json("topic", "offsets", "old", "--at", "2001-01-01", *cli.kafka)
    assert (row["start"], row["end"], row["last_stable"], row["at"]) == (4, 4, 4, None)


@pytest.mark.feature("AD61")
def test_a_clone_has_partitions_replicas_and_configs_and_no_records(cli: Cli) -> None:
    create(cli, "model", "-p", "3", "-r", "2", "-c", "retention.ms=60000")
    cli.json("topic", "produce", "model", *cli.kafka, stdin=b"a\n")
    (made,) = cli.json("topic", "clone", "model", "copy", "-c", "segment.bytes=1048576", *cli.kafka)
    assert (made["partitions"], made["replication_factor"]) == (3, 2)
    rows = {row["name"]: row for row in cli.json("topic", "configs", "copy", *cli.kafka)}
    assert {name for name, row in rows.items() if row["source"] == "topic"} == {
        "retention.ms",
        "segment.bytes",
    }
    kept = rows["retention.ms"]
    assert (kept["value"], kept["default"]) == ("60000", "604800000")
    assert cli.read("copy") == []


@pytest.mark.feature("AD62")
@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (("--topic", "settings"), "retention.ms", "60000"),
        (("--broker", "1"), "log.retention.ms", "70000"),
        (("--brokers",), "log.retention.ms", "80000"),
        (("--group", "settings"), "consumer.session.timeout.ms", "50000"),
    ],
)
def test_a_setting_is_set_shown_and_removed(
    cli: Cli, where: tuple[str, ...], name: str, value: str
) -> None:
    create(cli, "settings", "--if-not-exists")
    (before,) = cli.json("config", "get", name, *where, *cli.kafka)
    cli.json("config", "set", f"{name}={value}", "--validate-only", *where, *cli.kafka)
    assert cli.json("config", "get", name, *where, *cli.kafka) == [before]
    cli.json("config", "set", f"{name}={value}", *where, *cli.kafka)
    shown = {row["name"]: row["value"] for row in cli.json("config", "list", *where, *cli.kafka)}
    assert shown[name] == value
    cli.json("config", "unset", name, *where, *cli.kafka)
    assert cli.json("config", "get", name, *where, *cli.kafka) == [before]


@pytest.mark.feature("AD62")
def test_a_list_grows_and_shrinks_and_a_wrong_value_changes_nothing(cli: Cli) -> None:
    create(cli, "listed")
    here = ("--topic", "listed", *cli.kafka)
    cli.json("config", "set", "cleanup.policy=compact", "--append", *here)
    assert cli.json("config", "get", "cleanup.policy", *here)[0]["value"] == "delete,compact"
    cli.json("config", "set", "cleanup.policy=delete", "--subtract", *here)
    refused = cli.run("config", "set", "retention.ms=1", "segment.bytes=x", *here)
    assert refused.returncode == ExitCode.USAGE
    rows = {row["name"]: row for row in cli.json("config", "list", "--all", *here)}
    assert rows["cleanup.policy"]["value"] == "compact"
    assert rows["retention.ms"]["source"] == rows["segment.bytes"]["source"] == "default"


@pytest.mark.feature("AD63")
def test_producers_of_a_topic_are_listed_with_their_sequences(cli: Cli) -> None:
    create(cli, "produced", "-p", "2")
    cli.json("topic", "produce", "produced", "--partition", "1", *cli.kafka, stdin=b"a\nb\n")
    (row,) = cli.json("producers", "list", "produced", *cli.kafka)
    assert (row["partition"], row["last_sequence"]) == (1, 1)
    assert (row["open_since_offset"], row["transactional_id"]) == (None, None)
    assert cli.json("producers", "list", "produced", "--open", *cli.kafka) == []
    assert cli.json("txn", "list", "--hanging", "-t", "produced", *cli.kafka) == []


@pytest.mark.feature("AD59")
def test_the_risks_of_a_restart_are_named_by_partition(cli: Cli) -> None:
    create(cli, "alone", "-p", "2", "-r", "1")
    create(cli, "strict", "-p", "1", "-r", "2", "-c", "min.insync.replicas=2")
    create(cli, "safe", "-p", "1", "-r", "2")
    found = cli.json("cluster", "can-restart", "1", *cli.kafka, code=ExitCode.FAILED)
    kinds = {(each["topic"], each["risk"]) for each in found["risks"]}
    assert {("alone", "replication_factor_1"), ("strict", "below_min_isr")} <= kinds
    assert "safe" not in {topic for topic, _ in kinds}
    assert cli.run("cluster", "can-restart", "9", *cli.kafka).returncode == ExitCode.FAILED


def test_log_directories_show_the_logs_in_them(cli: Cli) -> None:
    create(cli, "sized", "-p", "1", "-r", "2")
    cli.json("topic", "produce", "sized", *cli.kafka, stdin=b"x" * 1_000)
    rows: list[dict[str, Any]] = cli.json("cluster", "log-dirs", "1", *cli.kafka)
    logs = [each for row in rows for each in row["logs"] if each["topic"] == "sized"]
    assert {row["broker"] for row in rows} == {1}
    assert logs[0]["bytes"] > 1_000


@pytest.mark.feature("AD58")
def test_a_watch_ends_when_the_killed_broker_is_back(cli: Cli) -> None:
    create(cli, "watched", "-p", "2", "-r", "2")
    cli.cluster.kill("broker-2")
    health = ("cluster", "health", *cli.kafka)
    wait_for(lambda: cli.run(*health).returncode == ExitCode.FAILED, "the broker is missed")
    asked = (*health, "--exit-when-healthy", "--interval", "0.2")
    late = cli.run(*asked, "--timeout", "0")
    assert late.returncode == ExitCode.TEMPORARY, late.stderr
    argv = [*COMMAND, *asked, "-o", "json"]
    with running(argv, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        cli.cluster.restart("broker-2", START_SECONDS)
        *_, last = watching.stdout
        assert watching.wait(PATIENCE_S) == ExitCode.OK
    assert (first["healthy"], json.loads(last)["healthy"]) == (False, True)
    assert cli.run(*health).returncode == ExitCode.OK


@pytest.mark.feature("AD64")
def test_a_bundle_has_what_every_process_says_and_no_secret(cli: Cli, tmp_path: Path) -> None:
    create(cli, "bundled", "-p", "2")
    path = tmp_path / "bundle.zip"
    environment = {"TIDEMARK_DIR": str(cli.cluster.layout.directory)}
    log = cli.cluster.layout.log_path("broker-1")
    with log.open("a") as file:
        file.write("connected with password=hunter2 of nobody\n")
    argv = [*COMMAND, "debug", "bundle", "--to", str(path), "-o", "json", *cli.kafka]
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, timeout=PATIENCE_S, check=True
    )
    assert json.loads(done.stdout)["problems"] == []
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "hunter2" not in "".join(files.values())
    assert "password=(removed) of nobody" in files["logs/broker-1.log"]
    assert {"bundled"} <= {row["topic"] for row in json.loads(files["cluster/topics.json"])}
    for name in ("broker-1", "broker-2", "controller-1", "txn-coordinator-1"):
        assert "task " in files[f"processes/{name}/stacks.txt"]
        assert "process_cpu_seconds_total" in files[f"processes/{name}/metrics.txt"]
        assert "zookeeper.connect" in files[f"embedded/config/{name}.json"]
    assert json.loads(files["cluster/slow-requests.json"])["requests"]
    assert "Mode: standalone" in files["processes/zookeeper/srvr.txt"]


@pytest.mark.feature("AD65")
def test_slow_requests_are_shown_with_their_stages_the_slowest_first(cli: Cli) -> None:
    create(cli, "slow")
    where = cli.grpc[:2]
    found = cli.json("debug", "requests", "-n", "1000", *where)
    created = cli.json("debug", "requests", "--api", "createtopics", "-n", "1", *where)
    assert {row["api"] for row in created} == {"CreateTopics"}
    assert [row["total_us"] for row in found] == sorted(
        (r["total_us"] for r in found), reverse=True
    )
    assert all(set(row["stages_us"]) == {"handling", "waiting", "ordering"} for row in found)
    assert created[0]["client_id"] == "tidemark-cli"
    shown = cli.run("debug", "requests", "--broker", "1", *where)
    assert b"requests of 1 ms or more" in shown.stderr


@pytest.mark.feature("AD84")
def test_the_log_level_of_a_process_is_shown_and_changed(cli: Cli, cluster: DevCluster) -> None:
    member = cluster.layout.member("txn-coordinator-1")
    where = ("--ops", f"127.0.0.1:{member.ports['ops']}")
    kazoo = ("debug", "log-level", "--logger", "kazoo")
    (changed,) = cli.json(*kazoo, "error", *where)
    assert (changed["logger"], changed["level"]) == ("kazoo", "ERROR")
    (shown,) = cli.json(*kazoo, *where)
    assert shown == changed
    (every, *_) = cli.json("debug", "log-level", *where)
    assert (every["logger"], every["level"]) == ("", "INFO")
    refused = cli.run("debug", "log-level", "loud", *where)
    assert (refused.returncode, b"log level must be one of" in refused.stderr) == (64, True)


@pytest.mark.feature("AD65")
def test_a_broker_that_does_not_answer_is_named_with_its_problem(cli: Cli) -> None:
    done = cli.run("debug", "requests", "--broker", "9", *cli.grpc[:2])
    assert done.returncode == ExitCode.UNAVAILABLE
    assert b"broker 9" in done.stderr


@pytest.mark.feature("AD64")
def test_a_bundle_of_a_dead_cluster_is_written_with_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    words = ("debug", "bundle", "--to", str(path), "-b", "127.0.0.1:1", "--ops", "127.0.0.1:1")
    argv = [*COMMAND, *words, "-o", "json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=True)
    problems = {each["path"]: each["problem"] for each in json.loads(done.stdout)["problems"]}
    assert "refused" in problems["processes/127.0.0.1_1/metrics.txt"]
    assert "no broker answers" in problems["cluster/topics.json"]
    assert zipfile.ZipFile(path).namelist() != ["manifest.json"]
