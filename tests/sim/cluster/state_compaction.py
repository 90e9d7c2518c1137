"""What a broker's cleaner does to a coordinator's state, in one go and in its own process."""

from broker.core.partition import Role
from broker.storage.compaction import (
    clean_segments,
    is_current,
    job_for,
    last_data_offsets,
    plan_cleaning,
)

from sim.cluster.parts import SimTopic
from sim.cluster.processes import BrokerProcess


def compact(process: BrokerProcess, topic: SimTopic) -> bool:
    """Roll, and clean all that may be; whether there was anything."""
    hosted = process.node.hosted.get(topic.place)
    if hosted is None or hosted.partition.role is Role.FAILED:
        return False
    log, config, now_ms = hosted.log, hosted.log.config, process.node.clock.wall_ms()
    log.roll(now_ms)
    plan = plan_cleaning(
        log.segments(),
        log_start=hosted.partition.log_start,
        last_stable=min(hosted.partition.last_stable, log.synced_end),
        checkpoint=None,
        config=config,
        now_ms=now_ms,
    )
    if plan is None or plan.dirty_bytes == 0:
        return False
    producers = log.producers.entries()
    job = job_for(
        plan,
        hosted.topic_partition,
        config,
        now_ms=now_ms,
        last_data_offsets=last_data_offsets(producers, synced_end=log.synced_end),
        aborted=tuple(log.aborted_between(0, plan.first_uncleanable)),
        producers={one.producer_id: (one.producer_epoch, one.updated_at) for one in producers},
    )
    result = clean_segments(lambda: process.disk, job)
    sizes = {one.base_offset: one.size_bytes for one in log.segments()}
    if result.damage is not None or not is_current(result, sizes):
        return False
    topic.ledger.is_compacted = True  # type: ignore[attr-defined]  # a StateLedger
    swapped = [log.swap_segments(one.old_base_offsets, [one.path]) for one in result.groups]
    return all(swapped)
