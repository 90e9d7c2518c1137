"""Fetch requests of followers: report the follower's progress, read up to the log's end, and wait
for appends.
"""

from collections.abc import Callable, Hashable

from tidemark.kafka.fetch import HIGH_WATERMARK_UNSUPPORTED, FetchPartition, FetchRequest
from tidemark.kafka.headers import RequestHeader
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs

from broker.core.fetch_sessions import CachedPartition, FetchPlan
from broker.core.follower_answer import Found, wait_ms
from broker.core.parked import FOLLOWER
from broker.shell.kafka.fetching import Fetch, FetchParts, Reads
from broker.shell.listener.connection import Connection
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome
from broker.shell.partitions.parking_lot import Follower
from broker.shell.replication.replica_reader import Replica


class ReplicaFetch(Fetch):
    """One follower's request. The follower may act on the cluster: topics are not authorized."""

    __slots__ = ("_arrived_at", "_replica")
    parked_as = FOLLOWER

    def __init__(
        self,
        parts: FetchParts,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        plan: FetchPlan[FetchPartition],
    ) -> None:
        super().__init__(parts, connection, header, request, plan)
        self._replica = Replica(BrokerId(request.replica_id), BrokerEpoch(request.replica_epoch))
        self._arrived_at: InstantMs | None = parts.facts.clock.now_ms()

    def first_read(self) -> Reads:
        """Take the follower's progress, and read."""
        reads = self.read()
        self._arrived_at = None
        return reads

    def _wait_ms(self, reads: Reads) -> int:
        request = self._request
        return wait_ms(
            Found(reads.size_bytes, reads.failed, self._has_news(reads), self._is_awaited(reads)),
            bytes_min=request.bytes_min,
            wait_ms_max=request.wait_ms_max,
            serves_consumers=self._parts.read_replicas is not None,
        )

    def _must_wait_on(self, reads: Reads, due: InstantMs) -> bool:
        """True if too little moved; with consumers at followers a new high watermark is enough."""
        if self._parts.read_replicas is not None and self._has_news(reads):
            return False
        return super()._must_wait_on(reads, due)

    def _is_awaited(self, reads: Reads) -> bool:
        is_awaited = self._parts.parked.is_awaited
        return any(
            one.hosted is not None and one.outcome.read is not None and is_awaited(one.hosted)
            for one in reads.reads
        )

    def _has_news(self, reads: Reads) -> bool:
        if self._plan.session is not None:
            return any(
                one.cached is not None and one.cached.high_watermark != one.outcome.high_watermark
                for one in reads.reads
            )
        reported = (want.high_watermark for _, want in self._plan.named)
        return any(
            high_watermark != HIGH_WATERMARK_UNSUPPORTED
            and high_watermark < one.outcome.high_watermark
            for one, high_watermark in zip(reads.reads, reported, strict=True)
        )

    def _read_one(
        self, hosted: HostedPartition, want: FetchPartition, bytes_max: int
    ) -> ReadOutcome:
        return self._parts.replica_reader.read(
            hosted,
            want,
            self._replica,
            bytes_max=bytes_max,
            arrived_at=self._arrived_at,
        )

    def _left_behind(
        self, hosted: HostedPartition, want: FetchPartition, room: int, read_bytes: int
    ) -> int:
        return 0  # a second read would look as if the follower could not use the first

    def _within_quota(self, bytes_max: int) -> int:
        return bytes_max

    def _rests(
        self,
        hosted: HostedPartition,
        want: FetchPartition,
        cached: CachedPartition[FetchPartition],
        outcome: ReadOutcome,
    ) -> bool:
        partition = hosted.partition
        return cached.was_sent(
            outcome.high_watermark, outcome.log_start
        ) and partition.replica_set.fetch_may_stand(
            self._replica.broker_id, want.fetch_offset, cached, partition.bounds.log_end
        )

    def _watched(self, hosted: HostedPartition) -> Hashable:
        return hosted.tail

    def _waits_as(self) -> tuple[Hashable, ...]:
        return (Follower(self._replica.broker_id),)

    def _allowed(self) -> Callable[[str, bytes], ErrorCode | None]:
        return lambda _topic, _topic_id: None

    def _count(
        self, hosted: HostedPartition | None, size_bytes: int, error_code: ErrorCode
    ) -> None:
        if hosted is not None:
            self._parts.counters.replication_bytes_out += size_bytes

    def _throttle(self, size_bytes: int) -> int:
        return 0
