"""A follower's Fetch: tells how far the follower is, reads up to the log's end, and waits for
appends.
"""

from collections.abc import Callable, Hashable

from tidemark.kafka.fetch import HIGH_WATERMARK_UNSUPPORTED, FetchPartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId

from broker.shell.hosted import HostedPartition, ReadOutcome
from broker.shell.kafka.fetching import Fetch, Reads
from broker.shell.replica_reads import Replica, read_replica, take_progress


class ReplicaFetch(Fetch):
    """One follower's request. The follower may act on the cluster: topics are not asked about."""

    __slots__ = ()

    def first_read(self) -> Reads:
        """Take what the follower has told, then read. A follower whose high watermark is old is
        answered at once, records or not: it knows within one round trip.
        """
        node, replica = self._node, self._replica
        now = node.clock.now_ms()
        for (topic, topic_id, partition), want in self._plan.wanted:
            hosted = node.find(topic, topic_id, partition)
            if not isinstance(hosted, ErrorCode):
                take_progress(node, hosted, want, replica, now)
        reads = self.read()
        if not reads.failed and self._has_news(reads):
            return reads._replace(failed=True)
        return reads

    @property
    def _replica(self) -> Replica:
        request = self._request
        return Replica(BrokerId(request.replica_id), BrokerEpoch(request.replica_epoch))

    def _has_news(self, reads: Reads) -> bool:
        session = self._plan.session
        if session is not None:
            known = session.partitions
            return any(
                (cached := known.get(one.key)) is not None
                and cached.high_watermark != one.outcome.high_watermark
                for one in reads.reads
            )
        told = (want.high_watermark for _, want in self._plan.wanted)
        return any(
            known != HIGH_WATERMARK_UNSUPPORTED and known < one.outcome.high_watermark
            for one, known in zip(reads.reads, told, strict=True)
        )

    def _read_one(
        self, hosted: HostedPartition, want: FetchPartition, bytes_max: int
    ) -> ReadOutcome:
        return read_replica(self._node, hosted, want, self._replica, bytes_max=bytes_max)

    def _watched(self, hosted: HostedPartition) -> Hashable:
        return hosted.tail

    def _allowed(self) -> Callable[[str, bytes], ErrorCode | None]:
        return lambda _topic, _topic_id: None

    def _count(
        self, hosted: HostedPartition | None, size_bytes: int, error_code: ErrorCode
    ) -> None:
        if hosted is not None:
            self._node.counters.replication_bytes_out += size_bytes

    def _throttle(self, size_bytes: int) -> int:
        return 0
