"""Fetch requests of consumers in a cluster whose followers serve reads (KIP-392): a leader names
the follower in the consumer's rack, and a follower reads up to its own high watermark.
"""

from typing import ClassVar

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.errors import ErrorCode

from broker.core.partition import Role
from broker.shell.kafka.fetching import READ_COMMITTED, Fetch
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome


class NearFetch(Fetch):
    """One consumer's request."""

    __slots__ = ()
    looks_again: ClassVar[bool] = True

    def _read_one(
        self, hosted: HostedPartition, want: FetchPartition, bytes_max: int
    ) -> ReadOutcome:
        preferred = self._preferred(hosted, want)
        if preferred is not None:
            return preferred
        return self._parts.reader.read(
            hosted,
            want.fetch_offset,
            bytes_max=bytes_max,
            read_committed=self._request.isolation_level == READ_COMMITTED,
            leader_epoch_expected=want.current_leader_epoch,
            follower_may=True,
        )

    def _preferred(self, hosted: HostedPartition, want: FetchPartition) -> ReadOutcome | None:
        """Return the answer that names a follower, without records; None: read here."""
        partition, read_replicas = hosted.partition, self._parts.read_replicas
        assert read_replicas is not None, "consumers read from leaders alone"
        if (
            partition.role is not Role.LEADER
            or partition.epoch_refused(want.current_leader_epoch) is not None
        ):
            return None
        chosen = read_replicas.preferred(
            hosted,
            want.fetch_offset,
            rack=self._request.rack_id,
            listener=self._connection.listener.name,
        )
        if chosen is None:
            return None
        return ReadOutcome(
            ErrorCode.NONE,
            None,
            partition.high_watermark,
            partition.last_stable,
            partition.log_start,
            preferred_replica=chosen,
        )
