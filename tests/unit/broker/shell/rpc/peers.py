"""The other end of PartitionStore's streams, played by lists."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from broker.shell.rpc.append_stream import AppendParts
from broker.shell.rpc.fetch_stream import FetchStreamParts
from broker.shell.rpc.offset_queries import OffsetQueries
from broker.shell.rpc.streams import Caller
from tidemark.model.authorization import Requester
from tidemark.runtime.streams import END_OF_STREAM
from tidemark_wire.v1 import common_pb2
from unit.broker.shell.broker_parts import BrokerParts

CALLER = Caller(Requester("User:ANONYMOUS", ""), "peer", "request")
PARTITION = common_pb2.TopicPartition(topic="orders", partition=0)


class Peer:
    """The other end of a stream: what it sends, what it has heard. ``open`` keeps its side open."""

    def __init__(self, *requests: Any, stays: bool = False) -> None:
        self.requests: Sequence[Any] = list(requests)
        self.stays = stays
        self.answers: list[Any] = []
        self.read_count = 0

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if self.read_count < len(self.requests):
            self.read_count += 1
            return self.requests[self.read_count - 1]
        if self.stays:
            await asyncio.Event().wait()
        return END_OF_STREAM

    async def write(self, message: Any) -> None:
        await asyncio.sleep(0)
        self.answers.append(message)


def append_parts(parts: BrokerParts) -> AppendParts:
    """Parts of an Append stream of ``parts``."""
    return parts.services().store._append


def fetch_parts(parts: BrokerParts) -> FetchStreamParts:
    """Parts of a Fetch stream of ``parts``."""
    return parts.services().store._fetch


def offset_queries(parts: BrokerParts) -> OffsetQueries:
    """Answers of ``parts`` to offset queries."""
    return parts.services().store._offsets


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go round until it is so."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never became so")
