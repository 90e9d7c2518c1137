"""Batches whose highest timestamp is before their first one, as Sarama before 1.45.2 sends them."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tidemark.codec.record_batch import HEADER_BYTES, crc_matches, read_header
from tidemark.codec.records import assemble_stored, build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    read_produce_response,
    write_produce_request,
)
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from unit.broker.shell.broker_worlds import World, topic

VERSION = 9


class Worker:
    """Does each job in the loop's next turn."""

    async def run_for(self, _: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)


class Connection(SimpleNamespace):
    """A stub that can be the lane of appends."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Sender:
    """A connection that sends one batch in each request."""

    def __init__(self, **configs: str) -> None:
        self.world = world = World()
        world.show(topic(configs={key.replace("_", "."): value for key, value in configs.items()}))
        room = world.parts.partitions
        inspection = replace(room.inspection, workers=cast("Any", Worker()))
        world.parts.partitions = replace(room, inspection=inspection)
        self._handle = world.parts.hot(ApiKey.PRODUCE)
        self._answers: list[Any] = []
        self._work: list[Coroutine[Any, Any, None]] = []
        nothing = lambda *_: None  # noqa: E731 - a stub
        self._connection = Connection(
            requester=Requester("User:alice", ""),
            produce_prefix_bytes=0,
            repeated_produces={},
            listener=SimpleNamespace(name="CLIENT"),
            closed=False,
            order=SimpleNamespace(append_began=nothing),
            append_ended=nothing,
            start=self._work.append,
            later=lambda _: SimpleNamespace(send=lambda parts: self._answers.append(parts[0])),
            answer=lambda _, body: self._answers.append(body),
        )

    @property
    def now(self) -> int:
        return self.world.clock.wall_ms()

    @property
    def failed(self) -> int:
        return self.world.hosted().counters.failed_produces

    def batch(self, *ages_ms: int, highest: int) -> bytes:
        made = build_batch([(self.now - age, None, b"x", ()) for age in ages_ms])
        header = read_header(made)._replace(max_timestamp=highest)
        return assemble_stored(header, made[HEADER_BYTES:])

    def send(self, *batches: bytes) -> list[ProducePartitionResult]:
        """Return the results of requests that are sent one behind the other."""

        async def main() -> None:
            for batch in batches:
                one = ProducePartition(0, memoryview(batch))
                request = ProduceRequest(None, -1, 0, [ProduceTopic("orders", bytes(16), [one])])
                body = memoryview(bytearray(write_produce_request(VERSION, request)))
                header = SimpleNamespace(api_version=VERSION, client_id="c", correlation_id=1)
                self._handle(cast("Any", self._connection), cast("Any", header), body)
            await asyncio.gather(*self._work)
            self._work.clear()

        asyncio.run(main())
        read = [read_produce_response(one, VERSION).topics for one in self._answers]
        self._answers.clear()
        return sorted((result for ((_, _, (result,)),) in read), key=lambda one: one.base_offset)

    def stored(self) -> list[int]:
        """Return the highest timestamps of the batches in the log."""
        log = self.world.hosted().log
        found_bytes = log.read(0, 1 << 20, end=log.log_end)
        data = b"".join(one.file.read_at(one.position, one.length) for one in found_bytes.slices)
        found = []
        while data:
            header = read_header(data)
            assert crc_matches(memoryview(data[: header.size_bytes]), header)
            found.append(header.max_timestamp)
            data = data[header.size_bytes :]
        return found


@pytest.mark.parametrize("highest", [-1, 0])
@pytest.mark.parametrize("configs", [{}, {"compression_type": "uncompressed"}], ids=str)
def test_a_highest_timestamp_that_is_not_true_is_set_right(
    configs: dict[str, str], highest: int
) -> None:
    sender = Sender(**configs)
    untrue = sender.batch(10, 4, 7, highest=highest)
    true = sender.batch(9, highest=sender.now - 9)
    results = sender.send(untrue, true, untrue)
    assert [one.error_code for one in results] == [ErrorCode.NONE] * 3
    assert [one.base_offset for one in results] == [0, 3, 4]
    assert sender.stored() == [sender.now - 4, sender.now - 9, sender.now - 4]
    assert sender.failed == 0


def test_a_batch_without_timestamps_stays_without() -> None:
    sender = Sender()
    (result,) = sender.send(sender.batch(sender.now + 1, highest=-1))
    assert (result.error_code, sender.stored()) == (ErrorCode.NONE, [-1])


def test_the_producers_clock_does_not_count_with_log_append_time() -> None:
    sender = Sender(message_timestamp_type="LogAppendTime")
    (result,) = sender.send(sender.batch(10, highest=-1))
    assert (result.error_code, sender.stored()) == (ErrorCode.NONE, [sender.now])


def test_what_is_out_of_range_is_refused() -> None:
    sender = Sender(message_timestamp_before_max_ms="5")
    (result,) = sender.send(sender.batch(10, highest=-1))
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert sender.failed == 1
