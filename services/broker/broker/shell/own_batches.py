"""Batches that the broker or a coordinator writes: markers, changes of owner, records of groups.

The same three calls as for a producer's batch, without sequences and for acks=all.
"""

from typing import TYPE_CHECKING

from tidemark.codec.control_record import ControlRecord, EndTxnMarker
from tidemark.codec.record_batch import read_header, set_base_offset_and_epoch
from tidemark.model.errors import ErrorCode
from tidemark.storage.disk import DiskError

from broker.core.partition import ACKS_ALL, AppendPlan
from broker.shell.hosted import AppendOutcome, HostedPartition
from broker.storage.log import LogDamagedError

if TYPE_CHECKING:
    from broker.shell.node import BrokerNode


def append_own(
    node: "BrokerNode",
    hosted: HostedPartition,
    batch: bytes,
    *,
    control: ControlRecord | None = None,
    bumped: bool = False,
    leader_epoch_expected: int = -1,
) -> AppendOutcome:
    """Append exactly one batch, built here or checked before; ``control`` is what it says, if it is
    a control batch. ``bumped``: a marker of transactions v2.
    """
    partition, now_ms = hosted.partition, node.clock.wall_ms()
    header = read_header(batch)
    plan = partition.admit_own(
        header,
        len(batch),
        control=control,
        bumped=bumped,
        leader_epoch_expected=leader_epoch_expected,
    )
    if not isinstance(plan, AppendPlan):
        return node.not_planned(hosted, plan, ACKS_ALL)
    stored = bytearray(batch)
    set_base_offset_and_epoch(stored, 0, plan.first, plan.leader_epoch)  # type: ignore[arg-type]
    try:
        if isinstance(control, EndTxnMarker):
            hosted.log.expect_room()  # for the index of what it aborts
        hosted.log.append((stored,), plan, now_ms)  # type: ignore[arg-type]
    except DiskError as failure:
        return node.append_failed(hosted, plan, failure)
    except LogDamagedError as damage:
        return node.damaged(hosted, damage)
    gained_bytes = partition.appended(plan, now_ms)
    if partition.producers.newly_aborted:
        try:
            hosted.log.index_aborted()
        except DiskError as failure:
            # The marker is in the log and goes to the followers: only this directory is at fault.
            node.fence_directory(hosted.manager, failure)
    node.parked.appended(hosted, plan.size_bytes, gained_bytes)
    if not gained_bytes and partition.limits.flush_group:
        node.on_group_write()
    return AppendOutcome(
        error_code=ErrorCode.NONE,
        base_offset=plan.first,
        end=plan.last + 1,
        log_append_time_ms=-1,
        log_start=partition.log_start,
        must_wait=partition.high_watermark <= plan.last,
        message=None,
    )
