"""GroupLag: members, committed offsets and lag of the groups that this broker coordinates.

The coordinator of a group has its offsets. The ends of partitions are at their leaders, but an
in-sync replica has the high watermark too, at most one fetch old. So most ends are found here, at
no cost, and the leaders of the others are asked, a bounded number of partitions in each call.
Everything is computed when metrics are read, and kept for ``metrics.group.lag.cache.ms``: a broker
that is not scraped pays nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.runtime.log_ends import LogEnds
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.statistics import GroupFigures
from broker.core.partition import Role
from broker.metrics_config import MetricsConfig
from broker.shell.groups.coordinator import Groups
from broker.shell.partitions.hosted import HostedPartition

SLICE_POSITIONS: Final = 1_000
"""Positions of one turn of the event loop."""
ENDS_TIMEOUT_S: Final = 2.0
"""Time for which a scrape waits for the leaders of other partitions."""


class PositionLag(NamedTuple):
    """One group in one partition. ``lag`` is None if the partition's end is not known."""

    group_id: str
    at: TopicPartition
    offset: int
    lag: int | None


class LagFigures(NamedTuple):
    """Result of one computation."""

    members: Sequence[tuple[str, int]] = ()
    """Group ids with the number of their members."""
    positions: Sequence[PositionLag] = ()
    cut: int = 0
    """Number of positions beyond the bound, which are left out."""


class GroupSum(NamedTuple):
    """Lag of one group over the partitions in which it has committed an offset."""

    group_id: str
    lag: int
    """Sum of the known lags, in records."""
    unknown: int
    """Number of partitions whose lag is not known."""
    members: int


class GroupLag:
    """Computes figures and keeps the last ones."""

    def __init__(
        self,
        config: MetricsConfig,
        groups: Groups,
        hosted: Mapping[tuple[str, int], HostedPartition],
        metadata: MetadataCache,
        ends: LogEnds,
        clock: Clock,
    ) -> None:
        self._config = config
        self._groups = groups
        self._hosted = hosted
        self._metadata = metadata
        self._ends = ends
        self._clock = clock
        self._computing = asyncio.Lock()
        self._computed_at: int | None = None
        self.figures = LagFigures()

    async def refresh(self) -> None:
        """Compute the figures again if they are older than the cache allows."""
        if not self._config.metrics_group_lag_enable:
            return
        async with self._computing:
            age_ms = self.age_ms
            if age_ms is None or age_ms >= self._config.metrics_group_lag_cache_ms:
                self.figures = await self._compute()
                self._computed_at = self._clock.now_ms()

    @property
    def age_ms(self) -> int | None:
        """Age of the figures; None before the first computation."""
        return None if self._computed_at is None else self._clock.now_ms() - self._computed_at

    async def _compute(self) -> LagFigures:
        found = sorted(self._groups.figures(), key=lambda one: (one.member_count == 0, one[0]))
        members = [(one.group_id, one.member_count) for one in found]
        chosen, cut = _chosen(found, self._config.metrics_group_positions_max)
        ends = await self._ends_of({at for _, at, _ in chosen})
        positions: list[PositionLag] = []
        for group_id, at, offset in chosen:
            end = ends.get(at)
            positions.append(
                PositionLag(group_id, at, offset, None if end is None else max(0, end - offset))
            )
            if len(positions) % SLICE_POSITIONS == 0:
                await asyncio.sleep(0)
        return LagFigures(members, positions, cut)

    async def _ends_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of every partition for which it is known."""
        ends: dict[TopicPartition, int] = {}
        elsewhere: list[TopicPartition] = []
        for at in partitions:
            end = self._end_here(at)
            if end is None:
                elsewhere.append(at)
            else:
                ends[at] = end
        if elsewhere:
            asked = await self._ends.of(elsewhere, read_committed=False, timeout_s=ENDS_TIMEOUT_S)
            topics = self._metadata.image.topics
            for at in elsewhere:
                topic = topics.get(at.topic)
                end = None if topic is None else asked.get((topic.topic_id, at.partition))
                if end is not None:
                    ends[at] = end
        return ends

    def _end_here(self, at: TopicPartition) -> int | None:
        """Return the high watermark of a leader or an in-sync follower on this broker."""
        hosted = self._hosted.get(at)
        if hosted is None:
            return None
        partition = hosted.partition
        if partition.role is Role.LEADER:
            return partition.high_watermark
        topic = self._metadata.image.topics.get(at.topic)
        if partition.role is not Role.FOLLOWER or topic is None:
            return None
        # The topic of that name may have been created again, with fewer partitions.
        states = topic.partitions[at.partition : at.partition + 1]
        in_sync = any(partition.broker_id in state.isr for state in states)
        return partition.high_watermark if in_sync else None


def sums_of(figures: LagFigures) -> list[GroupSum]:
    """Return the lag of each group, the largest first."""
    lags: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for one in figures.positions:
        if one.lag is None:
            unknown[one.group_id] += 1
        else:
            lags[one.group_id] += one.lag
    sums = [
        GroupSum(group_id, lags[group_id], unknown[group_id], members)
        for group_id, members in figures.members
    ]
    return sorted(sums, key=lambda one: (-one.lag, one.group_id))


def _chosen(
    found: Iterable[GroupFigures], positions_max: int
) -> tuple[list[tuple[str, TopicPartition, int]], int]:
    """Return the positions within the bound, and the number of the others."""
    chosen: list[tuple[str, TopicPartition, int]] = []
    cut = 0
    for group in found:
        room = positions_max - len(chosen)
        if len(group.positions) > room:
            cut += len(group.positions)
            continue
        chosen += [(group.group_id, at, one.value.offset) for at, one in group.positions.items()]
    return chosen, cut
