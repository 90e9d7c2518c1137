"""State of the active controller during one term, and every decision that it makes.

A term decides on one change at a time, and on each with the state that the change before left.
``Controller`` writes the change to the store, and applies it here once it is written.
"""

from typing import assert_never

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, InstantMs
from tidemark.model.metadata import BrokerImage, ClusterDelta, ClusterImage
from tidemark.model.topics import INTERNAL_TOPICS

from controller.core.acls import decide_acls
from controller.core.cluster import Change, Cluster, StoreOp, fence, store_ops
from controller.core.constants import Constants, check_constants
from controller.core.coordinators import (
    Coordinators,
    decide_acquire_shard,
    decide_register_coordinator,
)
from controller.core.effects import (
    Effect,
    RemoveCoordinatorZnode,
    RemoveLiveZnode,
    Reply,
    Result,
)
from controller.core.elections import (
    decide_elect_leaders,
    decide_shutdown,
    due_elections,
    due_handover,
    rebalance,
)
from controller.core.elr_on_config_change import decide_configs
from controller.core.inputs import (
    AcquireShard,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterQuotas,
    AlterReassignments,
    AlterUsers,
    ControlledShutdown,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    Elected,
    ElectLeaders,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    RegisterBroker,
    RegisterCoordinator,
    ReportReplicas,
    Request,
    UnregisterBroker,
)
from controller.core.internal_topics import due_raise
from controller.core.isr_changes import decide_alter_partitions
from controller.core.leader_replacement import LeaderReplacement
from controller.core.limits import Limits
from controller.core.liveness import CoordinatorListing, LiveListing, newer, vanished
from controller.core.producer_ids import decide_producer_ids
from controller.core.quotas import decide_quotas
from controller.core.reassignments import decide_reassignments
from controller.core.registration import check_predecessor, decide_registration
from controller.core.soundness import decide_report
from controller.core.topics import (
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from controller.core.unregistration import decide_unregistration
from controller.core.users import decide_users


class ActiveTerm:
    """One term of the active controller.

    Invariant: the image is what the store held when the term began, and every change since then
    that the store is known to hold.
    """

    def __init__(
        self, elected: Elected, defaults: TopicDefaults, limits: Limits, now: InstantMs
    ) -> None:
        self._defaults = defaults
        self._limits = limits
        self._cluster = Cluster(elected.stored, elected.controller_id, elected.controller_epoch)
        self._listing = elected.listing
        self._constants = elected.stored.constants or Constants(limits.lease_ms)
        self._replacement = LeaderReplacement(
            self._cluster.image.position,
            max(limits.lease_ms, self._constants.lease_ms_max),
            limits.feed_lost_fence_ms,
            begun_at=now,
            no_subscriber_ms=limits.no_subscriber_resign_ms,
        )
        self._coordinators = Coordinators(
            elected.coordinators,
            fence_ms=limits.feed_lost_fence_ms,
            moves_max=limits.shard_moves_max,
            move_interval_ms=limits.shard_move_interval_ms,
            no_subscriber_ms=limits.no_subscriber_resign_ms,
        )
        self._elections_may_be_due = self._raise_may_be_due = True
        self._handover_may_be_due = True
        self._rebalance_may_be_due = False
        self._rebalance_at: InstantMs | None = None
        if limits.rebalance_interval_ms:
            self._rebalance_at = InstantMs(now + limits.rebalance_interval_ms)

    @property
    def image(self) -> ClusterImage:
        """All metadata, with every change that is written."""
        return self._cluster.image

    def check(self, *, is_idle: bool) -> None:
        """Assert every invariant. ``is_idle``: no change is being written, so that none is due."""
        self._cluster.check()
        if is_idle:
            assert not self._dead(), "the dead are fenced"
            assert not self._coordinators.vanished(self.image), "the dead own nothing"

    # -- inputs

    def see_brokers(self, listing: LiveListing) -> None:
        """Take a listing of the brokers that have a session, unless it is outdated."""
        self._listing = newer(listing, self._listing)

    def see_coordinators(self, listing: CoordinatorListing) -> None:
        """Take a listing of the coordinators of one kind, unless it is outdated."""
        self._coordinators.see(listing)

    def on_feed(self, stimulus: FeedAcknowledged | FeedLost | FeedRegained, now: InstantMs) -> None:
        """Take news of the feed stream of a broker or a coordinator."""
        registered = self.image.coordinators.values()
        if any(one.coordinator_epoch == stimulus.broker_epoch for one in registered):
            self._on_coordinator_feed(stimulus, now)
            return
        match stimulus:
            case FeedAcknowledged(broker_epoch, position):
                if self._replacement.acknowledged(broker_epoch, position):
                    self._elections_may_be_due = True
            case FeedLost(broker_epoch):
                self._replacement.stream_lost(broker_epoch, now)
            case FeedRegained(broker_epoch):
                self._replacement.stream_regained(broker_epoch)

    def _on_coordinator_feed(
        self, stimulus: FeedAcknowledged | FeedLost | FeedRegained, now: InstantMs
    ) -> None:
        match stimulus:
            case FeedLost(epoch):
                self._coordinators.stream_lost(epoch, now)
            case FeedRegained(epoch):
                self._coordinators.stream_regained(epoch)

    def apply(self, change: Change) -> None:
        """Apply a change that is written. The cluster changes nowhere else."""
        self._cluster.apply(change)
        if change.published:
            self._note_demotions(change.delta)

    def _note_demotions(self, delta: ClusterDelta) -> None:
        """Note leaders that have to acknowledge their demotion before another one leads."""
        image = self.image
        if delta.brokers_changed or delta.brokers_gone or delta.broker_configs_changed:
            self._elections_may_be_due = self._raise_may_be_due = True
        for topic in delta.topics_changed:
            self._raise_may_be_due |= topic.name in INTERNAL_TOPICS
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition)
                if partition.leader == NO_BROKER:
                    self._elections_may_be_due = True
                    self._replacement.demoted(key, partition, image.position, image.brokers)
                else:
                    self._replacement.elected(key)

    # -- decisions without a request

    def store_ops(self, change: Change) -> tuple[StoreOp, ...]:
        """Return the writes that store a change, in order."""
        return tuple(store_ops(self.image, change))

    def fence_silent(self, now: InstantMs) -> list[Effect]:
        """Note which brokers are gone since when. Return the removal of live znodes whose process
        has had no stream for too long.
        """
        brokers = self.image.brokers
        self._replacement.see(brokers, self._listing, now)
        if self._replacement.newly_expired(now):
            self._elections_may_be_due = True
        effects: list[Effect] = [
            RemoveLiveZnode(one.broker_id, one.incarnation_id)
            for one in self._replacement.to_fence(brokers, now)
        ]
        may_fence = self._replacement.has_subscribers
        effects += [
            RemoveCoordinatorZnode(one.kind, one.coordinator_id, one.incarnation_id)
            for one in self._coordinators.to_fence(self.image, now, may_fence=may_fence)
        ]
        return effects

    def should_resign(self, now: InstantMs) -> bool:
        """True if this controller is cut off from every live broker: another may not be."""
        return self._replacement.should_resign(self.image.brokers, self._listing, now)

    def due_change(self, now: InstantMs) -> Change | None:
        """Return a change that is due without a request; None: none is. Fencing comes first."""
        dead = self._dead()
        if dead:
            return Change(ClusterDelta(brokers_changed=tuple(map(fence, dead))))
        if self._elections_may_be_due:
            elected = due_elections(
                self._cluster, self._replacement, now, at_once=self._limits.elections_at_once
            )
            if elected is not None:
                return elected
            self._elections_may_be_due = False
        if self._handover_may_be_due:
            handed_over = due_handover(self._cluster, at_once=self._limits.elections_at_once)
            if handed_over is not None:
                return handed_over
            self._handover_may_be_due = False
        moved = self._coordinators.due(self.image, now)
        if moved is not None:
            return moved
        if self._raise_may_be_due:
            raised = due_raise(self._cluster)
            if raised is not None:
                return raised
            self._raise_may_be_due = False
        return self._due_rebalance(now)

    def _due_rebalance(self, now: InstantMs) -> Change | None:
        """Return the next part of a rebalance of leaders that is due."""
        if self._rebalance_at is not None and now >= self._rebalance_at:
            self._rebalance_at = InstantMs(now + self._limits.rebalance_interval_ms)
            self._rebalance_may_be_due = True
        if not self._rebalance_may_be_due:
            return None
        part = rebalance(self._cluster, at_once=self._limits.elections_at_once)
        self._rebalance_may_be_due = part is not None
        return part

    def _dead(self) -> tuple[BrokerImage, ...]:
        """Return the brokers that count as alive and have no session. None, if that is all brokers
        and some of them have a stream: they are alive, only without ZooKeeper, and no other broker
        could lead their partitions.
        """
        brokers = self.image.brokers
        dead = vanished(brokers, self._listing)
        is_all = len(dead) == sum(not broker.fenced for broker in brokers.values())
        return () if is_all and self._replacement.has_subscriber_among(dead) else dead

    def next_deadline(self, now: InstantMs) -> InstantMs | None:
        """Return when a decision is due by the passing of time; None: at no time."""
        deadlines = [
            self._replacement.next_deadline(now),
            self._coordinators.next_deadline(may_fence=self._replacement.has_subscribers),
            self._rebalance_at,
        ]
        due = min((one for one in deadlines if one is not None), default=None)
        return None if due is None else max(due, now)

    # -- requests

    def decide(
        self, request: Request, now: InstantMs
    ) -> tuple[Change | None, Reply | ElectLeaders]:
        """Return the change that a request makes, if any, and what follows once it is written: the
        reply, or a decision on the rest of the request.
        """
        request_id = request.header.request_id
        if now >= request.header.deadline:
            words = "the controller did not decide on the request, or the rest of it, in time"
            return None, Reply(request_id, ErrorCode.REQUEST_TIMED_OUT, words)
        try:
            change, result = self._dispatch(request, now)
        except TidemarkError as error:
            return None, Reply(request_id, error.code, error.message)
        if isinstance(result, ElectLeaders):
            return change, result
        return change, Reply(request_id, result=result)

    def _dispatch(
        self, request: Request, now: InstantMs
    ) -> tuple[Change | None, Result | ElectLeaders]:
        match request:
            case CreateTopics():
                return decide_create_topics(self._cluster, request, self._defaults)
            case DeleteTopics():
                return decide_delete_topics(self._cluster, request, self._defaults)
            case CreatePartitions():
                return decide_create_partitions(self._cluster, request, self._defaults)
            case AlterConfigs():
                return decide_configs(self._cluster, request)
            case CreateAcls() | DeleteAcls() | AlterUsers() | AlterQuotas():
                return _dispatch_access(self._cluster, request)
            case AllocateProducerIds():
                return decide_producer_ids(self._cluster, request)
            case RegisterBroker() | UnregisterBroker() | ControlledShutdown():
                return self._dispatch_membership(request, now)
            case RegisterCoordinator():
                listing = self._coordinators.listing(request.listing.kind)
                return decide_register_coordinator(self._cluster, request, listing)
            case AcquireShard():
                return decide_acquire_shard(self._cluster, request)
            case _:
                return self._dispatch_partitions(request, now)

    def _dispatch_partitions(
        self,
        request: AlterPartitions | ReportReplicas | ElectLeaders | AlterReassignments,
        now: InstantMs,
    ) -> tuple[Change | None, Result | ElectLeaders]:
        match request:
            case AlterPartitions():
                return decide_alter_partitions(self._cluster, request)
            case ReportReplicas():
                return decide_report(self._cluster, request)
            case ElectLeaders():
                at_once = self._limits.elections_at_once
                return decide_elect_leaders(
                    self._cluster, request, self._replacement, now, at_once=at_once
                )
            case AlterReassignments():
                replicas_max = self._defaults.replicas_per_topic_max
                return decide_reassignments(self._cluster, request, replicas_max)
            case _:
                assert_never(request)

    def _dispatch_membership(
        self, request: RegisterBroker | UnregisterBroker | ControlledShutdown, now: InstantMs
    ) -> tuple[Change | None, Result]:
        match request:
            case RegisterBroker():
                return self._register(request, now)
            case UnregisterBroker():
                return self._unregister(request, now), None
            case ControlledShutdown():
                self._handover_may_be_due = True
                at_once = self._limits.elections_at_once
                return decide_shutdown(self._cluster, request, at_once=at_once)

    def _register(self, request: RegisterBroker, now: InstantMs) -> tuple[Change | None, Result]:
        """Register a broker, unless another process of the same id may still lead."""
        decided = decide_registration(self._cluster, request, self._listing)
        check_constants(self._constants, request.broker)
        last = self.image.brokers.get(request.broker.broker_id)
        lease_left_ms = 0 if last is None else self._replacement.lease_left_ms(last, now)
        check_predecessor(last, request.broker, lease_left_ms)
        return decided

    def _unregister(self, request: UnregisterBroker, now: InstantMs) -> Change:
        broker = self.image.brokers.get(request.broker_id)
        left_ms = 0 if broker is None else self._replacement.lease_left_ms(broker, now)
        return decide_unregistration(
            self.image, request.broker_id, self._listing, lease_left_ms=left_ms
        )


def _dispatch_access(
    cluster: Cluster, request: CreateAcls | DeleteAcls | AlterUsers | AlterQuotas
) -> tuple[Change | None, Result]:
    if isinstance(request, AlterQuotas):
        return decide_quotas(cluster, request)
    if isinstance(request, AlterUsers):
        return decide_users(cluster, request)
    return decide_acls(cluster, request)
