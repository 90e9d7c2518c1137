"""Log lines of a published change, one for each kind of change, and counts of elections.

Lists in a line are cut: the end of a broker may concern thousands of partitions.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import (
    NO_COORDINATOR,
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    PartitionImage,
)
from tidemark.model.topics import topic_id_text
from tidemark.runtime.metrics import Tally, Timings
from tidemark.runtime.telemetry import fields, shortened

log = logging.getLogger(__name__)

MILLISECONDS_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


@dataclass(slots=True)
class ElectionStats:
    """Times to write elections, and the numbers of unclean ones and of internal errors."""

    times_ms: Timings = field(default_factory=lambda: Timings(MILLISECONDS_BUCKETS))
    unclean: Tally = field(default_factory=Tally)
    faults: Tally = field(default_factory=Tally)


class PartitionChange(NamedTuple):
    """A partition before and after a change. ``before`` None: it is new."""

    topic: str
    before: PartitionImage | None
    after: PartitionImage

    @property
    def name(self) -> str:
        """Topic and partition number, as in ``orders-0``."""
        return f"{self.topic}-{self.after.partition}"

    @property
    def elected(self) -> bool:
        """True if another broker leads than before."""
        moved = self.before is not None and self.before.leader != self.after.leader
        return moved and self.after.leader != NO_BROKER

    @property
    def unclean(self) -> bool:
        """True if acknowledged records may be lost: the new leader was in neither ISR nor ELR."""
        before = self.before
        if before is None or not self.elected:
            return False
        return self.after.leader not in before.isr and self.after.leader not in before.elr

    @property
    def went_offline(self) -> bool:
        """True if the partition lost its leader."""
        led = self.before is not None and self.before.leader != NO_BROKER
        return led and self.after.leader == NO_BROKER

    @property
    def isr_changed(self) -> bool:
        """True if replicas joined or left the ISR."""
        return self.before is not None and set(self.before.isr) != set(self.after.isr)

    @property
    def reassignment(self) -> str:
        """'started' or 'ended' for a move of replicas that did so; '' otherwise."""
        was = self.before is not None and self.before.is_reassigning
        now = self.after.is_reassigning
        return "" if was == now else ("started" if now else "ended")


def changes_of(before: ClusterImage, delta: ClusterDelta) -> Iterator[PartitionChange]:
    """Yield every partition that changes."""
    for topic in delta.topics_changed:
        old_topic = before.topics_by_id.get(topic.topic_id)
        old = () if old_topic is None else old_topic.partitions
        for number, partition in enumerate(topic.partitions):
            was = old[number] if number < len(old) else None
            if was is not partition and was != partition:
                yield PartitionChange(topic.name, was, partition)


def report(before: ClusterImage, delta: ClusterDelta, after: ClusterImage) -> tuple[int, int]:
    """Log a change. Return the number of elections in it, and how many of them were unclean."""
    version = after.position.version
    for broker in delta.brokers_changed:
        _log_broker(before.brokers.get(broker.broker_id), broker, version)
    for broker_id in delta.brokers_gone:
        log.info("broker unregistered", extra=fields(broker_id=broker_id, version=version))
    changes = tuple(changes_of(before, delta))
    _log_topics(before, delta, version)
    elected = [change for change in changes if change.elected]
    unclean = [change for change in elected if change.unclean]
    _log_partitions("leaders elected", map(_led, elected), version)
    if unclean:
        names = list(map(_led, unclean))
        words = fields(**shortened("partitions", names), version=version)
        log.warning("unclean leaders elected, records may be lost", extra=words)
    offline = (change.name for change in changes if change.went_offline)
    _log_partitions("partitions without a leader", offline, version)
    _log_partitions("isr changed", (_isr(item) for item in changes if item.isr_changed), version)
    for word in ("started", "ended"):
        moved = (change.name for change in changes if change.reassignment == word)
        _log_partitions(f"reassignments {word}", moved, version)
    _log_coordinators(before, delta, version)
    for name in delta.broker_configs_changed:
        words = fields(broker=name or "default", version=version)
        log.info("broker configuration changed", extra=words)
    for name in delta.group_configs_changed:
        log.info("group configuration changed", extra=fields(group=name, version=version))
    for name in delta.client_metrics_changed:
        words = fields(subscription=name, version=version)
        log.info("subscription to client metrics changed", extra=words)
    if delta.acls_changed:
        names = [f"{one.resource_type.name}:{one.name}" for one in delta.acls_changed]
        log.info("ACLs changed", extra=fields(**shortened("patterns", names), version=version))
    for name in delta.users_changed:
        log.info("credentials of a user changed", extra=fields(user=name, version=version))
    return len(elected), len(unclean)


def _led(change: PartitionChange) -> str:
    return f"{change.name}:{change.after.leader}"


def _isr(change: PartitionChange) -> str:
    return f"{change.name}:{'/'.join(map(str, change.after.isr))}"


def _log_broker(before: BrokerImage | None, broker: BrokerImage, version: int) -> None:
    if broker.fenced:
        what = "broker fenced"
    elif broker.shutting_down and before is not None and not before.shutting_down:
        what = "broker shutting down"
    else:
        what = "broker registered"
    words = fields(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, version=version)
    log.info(what, extra=words)


def _log_coordinators(before: ClusterImage, delta: ClusterDelta, version: int) -> None:
    for one in delta.coordinators_changed:
        words = fields(
            kind=one.kind,
            coordinator_id=one.coordinator_id,
            coordinator_epoch=one.coordinator_epoch,
            version=version,
        )
        log.info("coordinator registered", extra=words)
    for kind, number in delta.coordinators_gone:
        words = fields(kind=kind, coordinator_id=number, version=version)
        log.warning("coordinator gone", extra=words)
    for kind, owners in delta.shards_changed.items():
        was = {one.shard: one.coordinator_id for one in before.shards.get(kind, ())}
        moved = [
            f"{one.shard}:{one.coordinator_id}"
            for one in owners
            if was.get(one.shard, NO_COORDINATOR) != one.coordinator_id
        ]
        if moved:
            words = fields(**shortened("shards", moved), kind=kind, version=version)
            log.info("shards assigned", extra=words)


def _log_topics(before: ClusterImage, delta: ClusterDelta, version: int) -> None:
    made = [item for item in delta.topics_changed if item.topic_id not in before.topics_by_id]
    if made:
        names = [topic.name for topic in made]
        log.info("topics created", extra=fields(**shortened("topics", names), version=version))
    altered = [
        topic.name
        for topic in delta.topics_changed
        if (old := before.topics_by_id.get(topic.topic_id)) is not None
        and (old.configs != topic.configs or len(old.partitions) != len(topic.partitions))
    ]
    if altered:
        log.info("topics changed", extra=fields(**shortened("topics", altered), version=version))
    if delta.topics_deleted:
        known = before.topics_by_id
        gone = [
            known[one].name if one in known else topic_id_text(one) for one in delta.topics_deleted
        ]
        log.info("topics deleted", extra=fields(**shortened("topics", gone), version=version))


def _log_partitions(what: str, names: Iterable[str], version: int) -> None:
    listed = list(names)
    if listed:
        log.info(what, extra=fields(**shortened("partitions", listed), version=version))
