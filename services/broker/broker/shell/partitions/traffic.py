"""Traffic: the counters of a broker as one sum each, for rates that others compute."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from tidemark.runtime.clock import Clock

from broker.core.partition import Role
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.table import PartitionTable

SLICE: Final = 1_000
"""Topics or partitions of one turn of the event loop."""
Item = TypeVar("Item")


class TrafficCounters(NamedTuple):
    """Counters since ``started_ms``, a wall time; ``at_ms`` is monotonic."""

    started_ms: int
    at_ms: int
    bytes_in: int
    bytes_out: int
    records_in: int
    replication_bytes_in: int
    produce_requests: int
    fetch_requests: int
    open_transaction_partitions: int


class Traffic:
    """Reads the counters of one broker, in slices between which the event loop does other work."""

    def __init__(self, counters: BrokerCounters, table: PartitionTable, clock: Clock) -> None:
        self._counters = counters
        self._table = table
        self._clock = clock
        self._started_ms = clock.wall_ms()

    async def read(self) -> TrafficCounters:
        """Return the sums over all topics."""
        at_ms = self._clock.now_ms()
        sums = [0] * 5
        gone = self._counters.topics_gone
        async for topic in _in_slices((gone, *self._counters.topics.values())):
            sums[0] += topic.bytes_in
            sums[1] += topic.bytes_out
            sums[2] += topic.records_in
            sums[3] += topic.produces
            sums[4] += topic.fetches
        held = 0
        async for hosted in _in_slices(tuple(self._table.by_name.values())):
            one = hosted.partition
            # Ended transactions may stay in the table until the last stable offset is looked up.
            held += one.role is Role.LEADER and len(one.producers.txns) > 0
        return TrafficCounters(
            started_ms=self._started_ms,
            at_ms=at_ms,
            bytes_in=sums[0],
            bytes_out=sums[1],
            records_in=sums[2],
            replication_bytes_in=self._counters.replication_bytes_in,
            produce_requests=sums[3],
            fetch_requests=sums[4],
            open_transaction_partitions=held,
        )


async def _in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield all items, with a turn for other work after each slice."""
    rest = iter(items)
    while part := tuple(islice(rest, SLICE)):
        for one in part:
            yield one
        await asyncio.sleep(0)
