"""A cluster that does not answer: commands say so at the first attempt."""

import socket
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tidemark.cli import settings
from tidemark.cli.client_calls import run
from tidemark.cli.failure import CommandError
from tidemark.cli.group import admin as group_admin
from tidemark.cli.share import admin as share_admin
from tidemark.cli.topic.consume import ConsumeJob, Read, consume
from tidemark.cli.topic.formats import StartAt
from tidemark.cli.topic.percent_format import InputRecord
from tidemark.cli.topic.produce import ProduceJob, Sent, produce
from tidemark.cli.txn import admin as txn_admin
from tidemark.cli.txn import sinks
from tidemark.client.share.share_views import ShareViews
from tidemark.client.transactions.sink_batches import SinkBatches
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode

_PATIENCE_MS = 1_000
"""For how long a client would try again."""


@dataclass
class Closing:
    """A listener that closes each connection at once, and counts them."""

    address: str
    connections: int = 0


@pytest.fixture
def closing() -> Iterator[Closing]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seen = Closing(f"127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                seen.connections += 1
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def refused(call: Coroutine[Any, Any, object], closing: Closing) -> None:
    with pytest.raises(CommandError) as raised:
        run(call)
    assert raised.value.exit_code is ExitCode.UNAVAILABLE
    told = list(raised.value.lines())
    assert told[0].startswith(f"error: no broker answers ({closing.address}")
    assert told[1:3] == [f"  address: {closing.address}", "  api: Metadata"]
    assert closing.connections == 1


@pytest.mark.feature("AD53")
@pytest.mark.parametrize("command", ["group", "share", "txn"])
def test_what_a_coordinator_answers_is_not_asked_for_again_and_again(
    command: str, closing: Closing
) -> None:
    settings.begin((f"timeout-ms={_PATIENCE_MS}",), None)
    calls: dict[str, Coroutine[Any, Any, object]] = {
        "group": group_admin.describe(closing.address, ["g"], stable=False, zookeeper=None),
        "share": share_admin.describe(closing.address, ["s"]),
        "txn": txn_admin.describe(closing.address, ["t"]),
    }
    call = calls.pop(command)
    for other in calls.values():
        other.close()
    refused(call, closing)


@pytest.mark.feature("AD53")
def test_records_are_not_sent_to_a_cluster_that_does_not_answer(
    closing: Closing, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"a\n")
    job = ProduceJob(
        bootstrap=closing.address,
        topic="t",
        source=str(lines),
        read=lambda line, _: InputRecord(None, line),
        end=b"\n",
        headers=(),
        partition=None,
        settings={"max_block_ms": _PATIENCE_MS},
    )
    refused(produce(job, Sent()), closing)


@pytest.mark.feature("AD53")
def test_records_are_not_read_from_a_cluster_that_does_not_answer(closing: Closing) -> None:
    job = ConsumeJob(
        bootstrap=closing.address,
        topic="t",
        start=StartAt("earliest", 0),
        partitions=(),
        count=None,
        until_end=True,
        printer=lambda _: b"",
        settings={"request_timeout_ms": _PATIENCE_MS},
    )
    refused(consume(job, Read()), closing)


@pytest.mark.feature("AD53")
@pytest.mark.parametrize("command", ["share browse", "txn forget"])
def test_a_cluster_is_reached_over_grpc_before_what_tries_again(
    command: str, closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tries_again(*_: object, **__: object) -> None:
        raise AssertionError("no broker answers, and this would try again")

    monkeypatch.setattr(ShareViews, "browse", tries_again)
    monkeypatch.setattr(SinkBatches, "forget", tries_again)
    at = TopicPartition("t", 0)
    call: Coroutine[Any, Any, object] = (
        share_admin.browse(closing.address, "g", at, first=0, last=None)
        if command == "share browse"
        else sinks.forget(closing.address, "s", abort_open=False)
    )
    with pytest.raises(CommandError) as raised:
        run(call)
    assert raised.value.exit_code is ExitCode.UNAVAILABLE
    assert raised.value.address == closing.address
