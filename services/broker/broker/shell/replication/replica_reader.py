"""ReplicaReader: a follower's fetch at its leader, which reports the follower's progress and reads
up to the end of the log.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs
from tidemark.runtime.clock import Clock

from broker.core.bounds import LogBounds
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
        _, leader_epoch, offset, last_epoch, follower_start, _, _, _, synced_end = want
        broker_id, broker_epoch = replica
        # A NamedTuple's own constructor takes twice as long.
        fetch = tuple.__new__(
            FollowerFetch,
            (broker_id, broker_epoch, offset, synced_end, last_epoch, follower_start),
        )
        error_code, diverging = partition.judge_fetch(fetch, leader_epoch)
        if error_code and error_code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return ReadOutcome(error_code, None, -1, -1, -1)
        if arrived_at is not None and not error_code and diverging is None:
            self.take_progress(hosted, fetch, arrived_at)
        if error_code or diverging is not None or offset >= bounds.log_end:
            return _nothing_from(bounds, error_code, diverging)
        is_throttled = self._throttle.concerns(hosted, broker_id)
        if is_throttled and not self._throttle.may_send(self._clock.now_ms()):
            return _nothing_from(bounds)
        outcome = self._reader.read_log(hosted, offset, bytes_max=bytes_max, end=bounds.log_end)
        found = outcome.read
        if found is not None:
            known = partition.replica_set.progress.get(broker_id)
            if known is None:  # its directory failed under what this fetch released
                return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
            if arrived_at is not None and known.sent_from == offset:
                self._suspects.add(hosted, offset, found)
            known.sent_from = offset
            if is_throttled:
                self._throttle.sent(found.length_bytes, self._clock.now_ms())
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
        if self._parked.deletions:
            self._parked.followers_started(hosted)
        if partition.replica_set.may_join_by_fetch(fetch.broker_id):
            self._on_follower(hosted)


def _nothing_from(
    bounds: LogBounds,
    error_code: ErrorCode = _NO_ERROR,
    diverging: tuple[int, int] | None = None,
) -> ReadOutcome:
    """Return the outcome of a read without records, with the bounds of the leader's log."""
    high_watermark = bounds.high_watermark
    return ReadOutcome(
        error_code, None, high_watermark, high_watermark, bounds.log_start, diverging
    )
