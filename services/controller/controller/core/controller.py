"""The controller as a machine. State is written first, then applied, then published."""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, assert_never

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, InstantMs
from tidemark.model.metadata import BrokerImage, ClusterDelta, ClusterImage
from tidemark.model.topics import INTERNAL_TOPICS

from controller.core.cluster import Change, Cluster, fence, store_ops
from controller.core.constants import Constants, check_constants
from controller.core.coordinators import (
    Coordinators,
    decide_acquire_shard,
    decide_register_coordinator,
)
from controller.core.effects import (
    CloseFeed,
    Effect,
    OpenFeed,
    Publish,
    RemoveCoordinatorZnode,
    RemoveLiveZnode,
    Reply,
    Resign,
    Result,
    WriteStore,
)
from controller.core.elections import (
    decide_elect_leaders,
    decide_shutdown,
    due_elections,
    rebalance,
)
from controller.core.elr_on_config_change import decide_configs
from controller.core.inputs import (
    AcquireShard,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterReassignments,
    Asked,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Deposed,
    Elected,
    ElectLeaders,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    Input,
    LiveBrokersChanged,
    LiveCoordinatorsChanged,
    RegisterBroker,
    RegisterCoordinator,
    ReportReplicas,
    StoreFailed,
    StoreWritten,
    Tick,
)
from controller.core.internal_topics import due_raise
from controller.core.isr_changes import decide_alter_partitions
from controller.core.leader_replacement import LeaderReplacement
from controller.core.limits import Limits
from controller.core.liveness import NOBODY, CoordinatorListing, LiveListing, newer, vanished
from controller.core.producer_ids import decide_producer_ids
from controller.core.reassignments import decide_reassignments
from controller.core.registration import check_predecessor, decide_registration
from controller.core.soundness import decide_report
from controller.core.topics import (
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)

NO_SUBSCRIBERS: Final = "no broker follows the feed: another controller may be reachable"


class Role(Enum):
    """Whether this replica decides."""

    STANDBY = "standby"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class _Writing:
    """The change on its way to the store, and the request to answer when it is there."""

    write_id: int
    change: Change
    reply: Reply | None


class Controller:
    """The only place where the cluster's state lives; at most one change is on its way at a time.

    Invariant: ``cluster`` is what the store held when the term began, and every change since then
    that the store is known to hold. A standby has none.
    """

    def __init__(self, defaults: TopicDefaults, limits: Limits) -> None:
        self._defaults = defaults
        self._limits = limits
        self._role = Role.STANDBY
        self._cluster: Cluster | None = None
        self._listing: LiveListing = NOBODY
        self._writing: _Writing | None = None
        self._waiting: deque[Asked] = deque()
        self._write_ids = 0
        self._replacement: LeaderReplacement | None = None
        self._coordinators: Coordinators | None = None
        self._elections_may_be_due = self._raise_may_be_due = False
        self._rebalance_at: InstantMs | None = None
        self._constants = Constants(limits.lease_ms)

    @property
    def role(self) -> Role:
        """Active or standby."""
        return self._role

    @property
    def image(self) -> ClusterImage | None:
        """All metadata as last published; None on a standby."""
        return None if self._cluster is None else self._cluster.image

    def step(self, stimulus: Input, now: InstantMs) -> list[Effect]:
        """Take one input to completion. Never waits."""
        match stimulus:
            case Elected():
                effects = self._become_active(stimulus, now)
            case Deposed(reason):
                effects = self._become_standby(reason)
            case StoreWritten(write_id):
                effects = self._on_written(write_id)
            case StoreFailed(write_id, reason):
                effects = self._on_store_failed(write_id, reason)
            case LiveBrokersChanged(listing):
                self._listing = newer(listing, self._listing)
                effects = []
            case LiveCoordinatorsChanged(coordinators):
                self._see_coordinators(coordinators)
                effects = []
            case FeedAcknowledged() | FeedLost() | FeedRegained():
                effects = self._on_feed(stimulus, now)
            case Tick():
                effects = []
            case _:
                effects = self._on_asked(stimulus)
        return effects + self._proceed(now)

    def next_deadline(self, now: InstantMs) -> InstantMs | None:
        """When a Tick is due; None on a standby, and while nothing waits for time.

        While a change is on its way nothing is decided: its outcome comes first, however late.
        """
        if self._replacement is None or self._coordinators is None or self._writing is not None:
            return None
        deadlines = [
            self._replacement.next_deadline(now),
            self._coordinators.next_deadline(may_fence=self._replacement.has_subscribers),
            self._rebalance_at,
        ]
        due = min((one for one in deadlines if one is not None), default=None)
        return None if due is None else max(due, now)

    def check(self) -> None:
        """Assert every invariant."""
        assert (self._role is Role.ACTIVE) == (self._cluster is not None), (
            "only the active has state"
        )
        assert len(self._waiting) <= self._limits.requests_waiting_max, "requests are bounded"
        if self._cluster is None:
            assert self._writing is None, "a standby writes nothing"
            assert not self._waiting, "a standby keeps nobody waiting"
            return
        self._cluster.check()
        if self._writing is None:
            assert not self._dead(self._cluster), "the dead are fenced"
            assert self._coordinators is not None, "the active knows the coordinators"
            assert not self._coordinators.vanished(self._cluster.image), "the dead own nothing"
            assert not self._waiting, "nobody waits for nothing"

    # Roles.

    def _become_active(self, elected: Elected, now: InstantMs) -> list[Effect]:
        assert self._role is Role.STANDBY, "elected twice"
        self._role = Role.ACTIVE
        self._cluster = Cluster(elected.stored, elected.controller_id, elected.controller_epoch)
        self._listing = elected.listing
        image, limits = self._cluster.image, self._limits
        self._constants = elected.stored.constants or Constants(limits.lease_ms)
        self._replacement = LeaderReplacement(
            image.position,
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
        )
        self._elections_may_be_due = self._raise_may_be_due = True
        if limits.rebalance_interval_ms:
            self._rebalance_at = InstantMs(now + limits.rebalance_interval_ms)
        return [OpenFeed(image)]

    def _become_standby(self, reason: str) -> list[Effect]:
        if self._role is Role.STANDBY:
            return []
        refused: list[Effect] = [CloseFeed(reason)]
        if self._writing is not None and self._writing.reply is not None:
            refused.append(_not_controller(self._writing.reply.request_id))
        refused += [_not_controller(asked.request.request_id) for asked in self._waiting]
        self._role = Role.STANDBY
        self._cluster = self._replacement = self._coordinators = self._rebalance_at = None
        self._writing = None
        self._waiting.clear()
        self._listing = NOBODY
        return refused

    # The store.

    def _begin(self, cluster: Cluster, change: Change, reply: Reply | None) -> WriteStore:
        assert self._writing is None, "one change at a time"
        self._write_ids += 1
        self._writing = _Writing(self._write_ids, change, reply)
        return WriteStore(self._write_ids, tuple(store_ops(cluster.image, change)))

    def _on_written(self, write_id: int) -> list[Effect]:
        """The only place where the cluster changes: it follows the store, never leads it."""
        writing = self._writing
        if writing is None or writing.write_id != write_id:
            return []  # of a term that is over
        assert self._cluster is not None, "a standby writes nothing"
        self._writing = None
        self._cluster.apply(writing.change)
        image = self._cluster.image
        effects: list[Effect] = []
        if writing.change.published:
            self._note_demotions(writing.change.delta, image)
            effects.append(Publish(writing.change.delta, image, writing.change.unclean))
        if writing.reply is not None:
            effects.append(replace(writing.reply, position=image.position))
        return effects

    def _note_demotions(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Who leads no more is to acknowledge that before anyone else leads."""
        assert self._replacement is not None, "a standby publishes nothing"
        if delta.brokers_changed or delta.broker_configs_changed:
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

    def _on_feed(
        self, stimulus: FeedAcknowledged | FeedLost | FeedRegained, now: InstantMs
    ) -> list[Effect]:
        replacement = self._replacement
        if replacement is None or self._is_of_coordinator(stimulus, now):
            return []
        match stimulus:
            case FeedAcknowledged(broker_epoch, position):
                if replacement.acknowledged(broker_epoch, position):
                    self._elections_may_be_due = True
            case FeedLost(broker_epoch):
                replacement.stream_lost(broker_epoch, now)
            case FeedRegained(broker_epoch):
                replacement.stream_regained(broker_epoch)
        return []

    def _is_of_coordinator(
        self, stimulus: FeedAcknowledged | FeedLost | FeedRegained, now: InstantMs
    ) -> bool:
        """Whether it is a coordinator's stream; then that is all there is to do."""
        assert self._cluster is not None, "only the active has a feed"
        assert self._coordinators is not None, "only the active has a feed"
        epoch = stimulus.broker_epoch
        registered = self._cluster.image.coordinators.values()
        if not any(one.coordinator_epoch == epoch for one in registered):
            return False
        match stimulus:
            case FeedLost():
                self._coordinators.stream_lost(epoch, now)
            case FeedRegained():
                self._coordinators.stream_regained(epoch)
        return True

    def _see_coordinators(self, listing: CoordinatorListing) -> None:
        if self._coordinators is not None:
            self._coordinators.see(listing)

    def _on_store_failed(self, write_id: int, reason: str) -> list[Effect]:
        if self._writing is None or self._writing.write_id != write_id:
            return []
        return [*self._become_standby(reason), Resign(reason)]

    # Requests: decided one after the other, each on the state that the one before left.

    def _on_asked(self, asked: Asked) -> list[Effect]:
        request_id = asked.request.request_id
        if self._role is Role.STANDBY:
            return [_not_controller(request_id)]
        if isinstance(asked, RegisterBroker):
            self._listing = newer(asked.listing, self._listing)
        if isinstance(asked, RegisterCoordinator):
            self._see_coordinators(asked.listing)
        if len(self._waiting) >= self._limits.requests_waiting_max:
            words = f"{len(self._waiting)} requests are waiting for the controller already"
            return [Reply(request_id, ErrorCode.REQUEST_TIMED_OUT, words)]
        self._waiting.append(asked)
        return []

    def _proceed(self, now: InstantMs) -> list[Effect]:
        """Decide until something is to be written. The dead are fenced first."""
        effects: list[Effect] = []
        cluster = self._cluster
        if cluster is None or self._writing is not None:
            return effects
        effects += self._look_around(cluster, now)
        if self._should_resign(cluster, now):
            return [*effects, *self._become_standby(NO_SUBSCRIBERS), Resign(NO_SUBSCRIBERS)]
        change = self._unasked(cluster, now)
        if change is not None:
            return [*effects, self._begin(cluster, change, None)]
        while self._waiting and self._writing is None:
            asked = self._waiting.popleft()
            change, reply = self._decide(cluster, asked, now)
            if change is None:
                effects.append(replace(reply, position=cluster.image.position))
            else:
                effects.append(self._begin(cluster, change, reply))
        return effects

    def _look_around(self, cluster: Cluster, now: InstantMs) -> list[Effect]:
        """Who is gone, and for how long; whose stream has been broken for too long."""
        assert self._replacement is not None, "only the active looks"
        assert self._coordinators is not None, "only the active looks"
        brokers = cluster.image.brokers
        self._replacement.see(brokers, self._listing, now)
        if self._replacement.newly_expired(now):
            self._elections_may_be_due = True
        silent = self._replacement.to_fence(brokers, now)
        effects: list[Effect] = [
            RemoveLiveZnode(one.broker_id, one.incarnation_id) for one in silent
        ]
        if self._replacement.has_subscribers:
            effects += [
                RemoveCoordinatorZnode(one.kind, one.coordinator_id, one.incarnation_id)
                for one in self._coordinators.to_fence(cluster.image, now)
            ]
        return effects

    def _dead(self, cluster: Cluster) -> tuple[BrokerImage, ...]:
        """Who counts as alive and has no session any more. Nobody, when that is everybody and some
        still listen to us: they live, and only ZooKeeper is out of their reach; nobody else could
        lead what they lead.
        """
        assert self._replacement is not None, "only the active looks"
        brokers = cluster.image.brokers.values()
        dead = vanished(cluster.image.brokers, self._listing)
        alone = len(dead) == sum(not broker.fenced for broker in brokers)
        return () if alone and self._replacement.has_subscriber_among(dead) else dead

    def _should_resign(self, cluster: Cluster, now: InstantMs) -> bool:
        """Cut off from every broker that lives: another controller may not be (J7)."""
        assert self._replacement is not None, "only the active looks"
        return self._replacement.should_resign(cluster.image.brokers, now)

    def _unasked(self, cluster: Cluster, now: InstantMs) -> Change | None:
        """What is to be written without anyone asking: the dead are fenced first."""
        assert self._replacement is not None, "only the active decides"
        assert self._coordinators is not None, "only the active decides"
        dead = self._dead(cluster)
        if dead:
            return Change(ClusterDelta(brokers_changed=tuple(map(fence, dead))))
        if self._elections_may_be_due:
            elected = due_elections(cluster, self._replacement, now)
            if elected is not None:
                return elected
            self._elections_may_be_due = False
        moved = self._coordinators.due(cluster.image, now)
        if moved is not None:
            return moved
        if self._raise_may_be_due:
            raised = due_raise(cluster)
            if raised is not None:
                return raised
            self._raise_may_be_due = False
        if self._rebalance_at is not None and now >= self._rebalance_at:
            self._rebalance_at = InstantMs(now + self._limits.rebalance_interval_ms)
            return rebalance(cluster)
        return None

    def _decide(
        self, cluster: Cluster, asked: Asked, now: InstantMs
    ) -> tuple[Change | None, Reply]:
        request_id = asked.request.request_id
        if now >= asked.request.deadline:
            words = "the controller did not start the request in time"
            return None, Reply(request_id, ErrorCode.REQUEST_TIMED_OUT, words)
        try:
            change, result = self._dispatch(cluster, asked, now)
        except TidemarkError as error:
            return None, Reply(request_id, error.code, error.message)
        return change, Reply(request_id, result=result)

    def _dispatch(
        self, cluster: Cluster, asked: Asked, now: InstantMs
    ) -> tuple[Change | None, Result]:
        match asked:
            case CreateTopics():
                return decide_create_topics(cluster, asked, self._defaults)
            case DeleteTopics():
                return decide_delete_topics(cluster, asked)
            case CreatePartitions():
                return decide_create_partitions(cluster, asked, self._defaults)
            case AlterConfigs():
                return decide_configs(cluster, asked)
            case AllocateProducerIds():
                return decide_producer_ids(cluster, asked)
            case RegisterBroker():
                return self._register(cluster, asked, now)
            case RegisterCoordinator() | AcquireShard():
                return self._dispatch_coordinator(cluster, asked)
            case _:
                return _dispatch_partitions(cluster, asked)

    def _register(
        self, cluster: Cluster, asked: RegisterBroker, now: InstantMs
    ) -> tuple[Change | None, Result]:
        """Registered, unless another process of the same id may yet lead (LeaderReplacement)."""
        assert self._replacement is not None, "only the active decides"
        decided = decide_registration(cluster, asked, self._listing)
        check_constants(self._constants, asked.broker)
        known = cluster.image.brokers.get(asked.broker.broker_id)
        lease_left_ms = 0 if known is None else self._replacement.lease_left_ms(known, now)
        check_predecessor(known, asked.broker, lease_left_ms)
        return decided

    def _dispatch_coordinator(
        self, cluster: Cluster, asked: RegisterCoordinator | AcquireShard
    ) -> tuple[Change | None, Result]:
        if isinstance(asked, AcquireShard):
            return decide_acquire_shard(cluster, asked)
        assert self._coordinators is not None, "only the active decides"
        listing = self._coordinators.listing(asked.listing.kind)
        return decide_register_coordinator(cluster, asked, listing)


def _dispatch_partitions(
    cluster: Cluster,
    asked: AlterPartitions
    | ReportReplicas
    | ElectLeaders
    | AlterReassignments
    | ControlledShutdown,
) -> tuple[Change | None, Result]:
    match asked:
        case AlterPartitions():
            return decide_alter_partitions(cluster, asked)
        case ReportReplicas():
            return decide_report(cluster, asked)
        case ElectLeaders():
            return decide_elect_leaders(cluster, asked)
        case AlterReassignments():
            return decide_reassignments(cluster, asked)
        case ControlledShutdown():
            return decide_shutdown(cluster, asked)
        case _:
            assert_never(asked)


def _not_controller(request_id: int) -> Reply:
    return Reply(request_id, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
