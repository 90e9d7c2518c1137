"""What a follower's fetch does at its leader: it tells how far the follower is, and reads up to the
log's end.
"""

from typing import NamedTuple

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs

from broker.core.partition import FollowerFetch
from broker.shell.hosted import HostedPartition, ReadOutcome
from broker.shell.node import BrokerNode

_NO_ERROR = ErrorCode.NONE


class Replica(NamedTuple):
    """The follower that fetches. Its broker epoch is -1 where the request's version has none."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


def read_replica(
    node: BrokerNode,
    hosted: HostedPartition,
    want: FetchPartition,
    replica: Replica,
    *,
    bytes_max: int,
    arrived_at: InstantMs | None = None,
) -> ReadOutcome:
    """Slices from the follower's end on, committed or not; or where its log parted from ours.
    ``arrived_at``: when the fetch came, at the first look at it; a later look takes no progress.
    """
    partition = hosted.partition
    fetch = FollowerFetch(
        replica.broker_id,
        replica.broker_epoch,
        want.fetch_offset,
        want.synced_end,
        want.last_fetched_epoch,
    )
    error_code, diverging = partition.judge_fetch(fetch, want.current_leader_epoch)
    if arrived_at is not None and not error_code and diverging is None:
        take_progress(node, hosted, fetch, arrived_at)
    high_watermark, log_start = partition.high_watermark, partition.log_start
    if error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return ReadOutcome(error_code, None, high_watermark, high_watermark, log_start)
    if error_code:
        return ReadOutcome(error_code, None, -1, -1, -1)
    if diverging is not None or want.fetch_offset >= partition.log_end:
        return ReadOutcome(_NO_ERROR, None, high_watermark, high_watermark, log_start, diverging)
    throttle, now = node.leader_throttle, node.clock.now_ms()
    is_throttled = throttle.concerns(hosted, replica.broker_id)
    if is_throttled and not throttle.may_send(now):
        return ReadOutcome(_NO_ERROR, None, high_watermark, high_watermark, log_start)
    outcome = node.reader.read_log(
        hosted, want.fetch_offset, bytes_max=bytes_max, end=partition.log_end
    )
    if outcome.read is not None:
        known = partition.progress.get(replica.broker_id)
        if known is None:  # its directory failed under what this fetch released
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        if arrived_at is not None and known.sent_from == want.fetch_offset:
            node.suspects.add(hosted, want.fetch_offset, outcome.read)
        known.sent_from = want.fetch_offset
    if is_throttled and outcome.read is not None:
        throttle.sent(outcome.read.length_bytes, now)
    return outcome


def take_progress(
    node: BrokerNode, hosted: HostedPartition, fetch: FollowerFetch, now: InstantMs
) -> None:
    """The follower has all below its end. Wakes what the high watermark releases."""
    partition = hosted.partition
    before = partition.high_watermark
    gained_bytes = partition.follower_fetched(fetch, now)
    if partition.high_watermark != before:
        node.parked.moved(hosted, gained_bytes)
    if len(partition.isr) < len(partition.replicas):
        node.on_follower(hosted)
