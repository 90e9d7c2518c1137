"""ReplicaReader: a follower's fetch at its leader, which reports the follower's progress and reads
up to the end of the log.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs
from tidemark.runtime.clock import Clock

from broker.core.partition import FollowerFetch
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.reader import PartitionReader
from broker.shell.replication.suspects import Suspects
from broker.shell.replication.throttles import LeaderThrottle

_NO_ERROR = ErrorCode.NONE


class Replica(NamedTuple):
    """Follower that fetches. Its broker epoch is -1 if the request's version has none."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class ReplicaReader:
    """Fetches of all followers of one broker."""

    __slots__ = ("_clock", "_on_follower", "_parked", "_reader", "_suspects", "_throttle")

    def __init__(
        self,
        reader: PartitionReader,
        *,
        clock: Clock,
        throttle: LeaderThrottle,
        suspects: Suspects,
        parked: ParkingLot,
        on_follower: Callable[[HostedPartition], None],
    ) -> None:
        """``on_follower`` is called when a follower outside the ISR made progress."""
        self._reader = reader
        self._clock = clock
        self._throttle = throttle
        self._suspects = suspects
        self._parked = parked
        self._on_follower = on_follower

    def read(
        self,
        hosted: HostedPartition,
        want: FetchPartition,
        replica: Replica,
        *,
        bytes_max: int,
        arrived_at: InstantMs | None = None,
    ) -> ReadOutcome:
        """Return slices from the follower's end on, committed or not, or the point where its log
        diverges. ``arrived_at``: arrival of the fetch, at its first read only; later reads take no
        progress.
        """
        partition, bounds = hosted.partition, hosted.partition.bounds
        fetch = FollowerFetch(
            replica.broker_id,
            replica.broker_epoch,
            want.fetch_offset,
            want.synced_end,
            want.last_fetched_epoch,
            want.log_start_offset,
        )
        error_code, diverging = partition.judge_fetch(fetch, want.current_leader_epoch)
        if arrived_at is not None and not error_code and diverging is None:
            self.take_progress(hosted, fetch, arrived_at)
        high_watermark, log_start = bounds.high_watermark, bounds.log_start
        if error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return ReadOutcome(error_code, None, high_watermark, high_watermark, log_start)
        if error_code:
            return ReadOutcome(error_code, None, -1, -1, -1)
        if diverging is not None or want.fetch_offset >= bounds.log_end:
            return ReadOutcome(
                _NO_ERROR, None, high_watermark, high_watermark, log_start, diverging
            )
        throttle, now = self._throttle, self._clock.now_ms()
        is_throttled = throttle.concerns(hosted, replica.broker_id)
        if is_throttled and not throttle.may_send(now):
            return ReadOutcome(_NO_ERROR, None, high_watermark, high_watermark, log_start)
        outcome = self._reader.read_log(
            hosted, want.fetch_offset, bytes_max=bytes_max, end=bounds.log_end
        )
        if outcome.read is not None:
            known = partition.replica_set.progress.get(replica.broker_id)
            if known is None:  # its directory failed under what this fetch released
                return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
            if arrived_at is not None and known.sent_from == want.fetch_offset:
                self._suspects.add(hosted, want.fetch_offset, outcome.read)
            known.sent_from = want.fetch_offset
        if is_throttled and outcome.read is not None:
            throttle.sent(outcome.read.length_bytes, now)
        return outcome

    def take_progress(self, hosted: HostedPartition, fetch: FollowerFetch, now: InstantMs) -> None:
        """Take a follower's progress: it has everything below its end. Wakes the requests that the
        high watermark releases.
        """
        partition = hosted.partition
        before = partition.bounds.high_watermark
        gained_bytes = partition.follower_fetched(fetch, now)
        if partition.bounds.high_watermark != before:
            self._parked.moved(hosted, gained_bytes)
        if partition.replica_set.may_join_by_fetch(fetch.broker_id):
            self._on_follower(hosted)
