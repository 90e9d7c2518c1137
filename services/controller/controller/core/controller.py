"""The controller as a machine. State is written first, then applied, then published."""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, assert_never

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import BrokerImage, ClusterDelta, ClusterImage

from controller.core.cluster import Change, Cluster, fence, store_ops
from controller.core.configs import decide_alter_configs
from controller.core.effects import (
    CloseFeed,
    Effect,
    OpenFeed,
    ProducerIds,
    Publish,
    Registered,
    Reply,
    Resign,
    Result,
    WriteStore,
)
from controller.core.elections import elect_all
from controller.core.inputs import (
    AllocateProducerIds,
    AlterConfigs,
    Asked,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Deposed,
    Elected,
    Input,
    LiveBrokersChanged,
    RegisterBroker,
    StoreFailed,
    StoreWritten,
)
from controller.core.liveness import NOBODY, LiveListing, alive, incarnation_of, newer, vanished
from controller.core.topics import (
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)

PRODUCER_ID_BLOCK: Final = 1_000
_NO_ZNODE: Final = BrokerEpoch(-1)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the controller takes on."""

    requests_waiting_max: int = 4_096  # beyond it the caller hears REQUEST_TIMED_OUT at once

    def __post_init__(self) -> None:
        assert self.requests_waiting_max > 0, "requests_waiting_max"


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
                effects = self._become_active(stimulus)
            case Deposed(reason):
                effects = self._become_standby(reason)
            case StoreWritten(write_id):
                effects = self._on_written(write_id)
            case StoreFailed(write_id, reason):
                effects = self._on_store_failed(write_id, reason)
            case LiveBrokersChanged(listing):
                self._listing = newer(listing, self._listing)
                effects = []
            case _:
                effects = self._on_asked(stimulus)
        return effects + self._proceed(now)

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
            assert not vanished(self._cluster.image.brokers, self._listing), "the dead are fenced"
            assert not self._waiting, "nobody waits for nothing"

    # Roles.

    def _become_active(self, elected: Elected) -> list[Effect]:
        assert self._role is Role.STANDBY, "elected twice"
        self._role = Role.ACTIVE
        self._cluster = Cluster(elected.stored, elected.controller_id, elected.controller_epoch)
        self._listing = elected.listing
        return [OpenFeed(self._cluster.image)]

    def _become_standby(self, reason: str) -> list[Effect]:
        if self._role is Role.STANDBY:
            return []
        refused: list[Effect] = [CloseFeed(reason)]
        if self._writing is not None and self._writing.reply is not None:
            refused.append(_not_controller(self._writing.reply.request_id))
        refused += [_not_controller(asked.request.request_id) for asked in self._waiting]
        self._role = Role.STANDBY
        self._cluster = None
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
            effects.append(Publish(writing.change.delta, image))
        if writing.reply is not None:
            effects.append(replace(writing.reply, position=image.position))
        return effects

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
        dead = _fence_dead(cluster, self._listing)
        if dead is not None:
            return [self._begin(cluster, dead, None)]
        while self._waiting and self._writing is None:
            asked = self._waiting.popleft()
            change, reply = self._decide(cluster, asked, now)
            if change is None:
                effects.append(replace(reply, position=cluster.image.position))
            else:
                effects.append(self._begin(cluster, change, reply))
        return effects

    def _decide(
        self, cluster: Cluster, asked: Asked, now: InstantMs
    ) -> tuple[Change | None, Reply]:
        request_id = asked.request.request_id
        if now >= asked.request.deadline:
            words = "the controller could not begin in time"
            return None, Reply(request_id, ErrorCode.REQUEST_TIMED_OUT, words)
        try:
            change, result = self._dispatch(cluster, asked)
        except TidemarkError as error:
            return None, Reply(request_id, error.code, error.message)
        return change, Reply(request_id, result=result)

    def _dispatch(self, cluster: Cluster, asked: Asked) -> tuple[Change | None, Result]:
        match asked:
            case CreateTopics():
                return decide_create_topics(cluster, asked, self._defaults)
            case DeleteTopics():
                return decide_delete_topics(cluster, asked)
            case CreatePartitions():
                return decide_create_partitions(cluster, asked, self._defaults)
            case AlterConfigs():
                return decide_alter_configs(cluster, asked)
            case AllocateProducerIds():
                return _decide_producer_ids(cluster, asked)
            case RegisterBroker():
                return _decide_registration(cluster, asked, self._listing)
            case _:
                assert_never(asked)


def _not_controller(request_id: int) -> Reply:
    return Reply(request_id, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")


def _fence_dead(cluster: Cluster, listing: LiveListing) -> Change | None:
    """Fence brokers whose session is gone, and elect where they led."""
    image = cluster.image
    fenced = tuple(fence(broker) for broker in vanished(image.brokers, listing))
    if not fenced:
        return None
    live = alive(image.brokers) - {broker.broker_id for broker in fenced}
    topics = elect_all(image.topics.values(), live)
    return Change(ClusterDelta(brokers_changed=fenced, topics_changed=topics))


def _decide_producer_ids(
    cluster: Cluster, asked: AllocateProducerIds
) -> tuple[Change | None, ProducerIds]:
    broker = cluster.image.brokers.get(asked.broker_id)
    if broker is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {asked.broker_id} found."
        )
    if broker.broker_epoch != asked.broker_epoch:
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {asked.broker_id} has epoch {broker.broker_epoch}, not {asked.broker_epoch}",
        )
    first = cluster.next_producer_id
    change = Change(ClusterDelta(), next_producer_id=first + PRODUCER_ID_BLOCK)
    return change, ProducerIds(first, PRODUCER_ID_BLOCK)


def _decide_registration(
    cluster: Cluster, asked: RegisterBroker, listing: LiveListing
) -> tuple[Change | None, Registered]:
    """Unfence a broker under its new epoch, and elect where it can lead."""
    image, broker = cluster.image, asked.broker
    known = image.brokers.get(broker.broker_id)
    problem = _registration_problem(image, asked, listing)
    if problem is not None:
        raise problem
    registered = Registered(broker.broker_epoch, image.cluster_id)
    if known == broker:
        return None, registered  # asked again, for want of our answer
    live = alive(image.brokers) | {broker.broker_id}
    topics = elect_all(image.topics.values(), live, restarted=broker.broker_id)
    change = Change(ClusterDelta(brokers_changed=(broker,), topics_changed=topics))
    return change, registered


def _registration_problem(
    image: ClusterImage, asked: RegisterBroker, listing: LiveListing
) -> TidemarkError | None:
    broker = asked.broker
    if asked.cluster_id not in ("", image.cluster_id):
        return TidemarkError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the disks of broker {broker.broker_id} belong to cluster {asked.cluster_id},"
            f" this is cluster {image.cluster_id}",
        )
    malformed = _malformed(broker)
    if malformed is not None:
        return TidemarkError(ErrorCode.INVALID_REGISTRATION, malformed)
    if broker.broker_epoch == _NO_ZNODE or incarnation_of(broker) not in listing.live:
        return TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {broker.broker_id} has no live znode for incarnation"
            f" {broker.incarnation_id.hex()}: it must make one before it registers",
        )
    known = image.brokers.get(broker.broker_id)
    if known is None or known.fenced or known.incarnation_id == broker.incarnation_id:
        return None
    return TidemarkError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Another broker is registered with id {broker.broker_id}: incarnation"
        f" {known.incarnation_id.hex()}, whose ZooKeeper session is alive",
    )


def _malformed(broker: BrokerImage) -> str | None:
    listeners = [point.listener for point in broker.endpoints]
    if broker.broker_id < 0:
        return f"a broker id is not negative, this one is {broker.broker_id}"
    if not listeners:
        return f"broker {broker.broker_id} advertises no listener"
    if len(set(listeners)) != len(listeners):
        return f"broker {broker.broker_id} advertises a listener twice: {', '.join(listeners)}"
    if broker.fenced:
        return f"broker {broker.broker_id} cannot register as fenced"
    return None
