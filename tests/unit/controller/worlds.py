"""Small clusters for the controller's tests: brokers, topics, and a store that always works."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from controller.core.cluster import Change, Cluster, StoredCluster, new_partition
from controller.core.controller import Controller
from controller.core.effects import Effect, Publish, Reply, WriteStore
from controller.core.inputs import (
    CreateTopics,
    Elected,
    Input,
    LiveCoordinatorsChanged,
    NewTopic,
    RegisterBroker,
    RegisterCoordinator,
    Request,
    RequestHeader,
    StoreWritten,
)
from controller.core.limits import Limits
from controller.core.liveness import CoordinatorListing, LiveListing, incarnation_of
from controller.core.topics import TopicDefaults
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    InstantMs,
    TopicId,
)
from tidemark.model.metadata import (
    TXN,
    BrokerImage,
    ClusterDelta,
    CoordinatorImage,
    CoordinatorKey,
    Endpoint,
    TopicImage,
)

NEVER = InstantMs(1 << 60)
NOW = InstantMs(1_000)


def a_broker(
    number: int, *, epoch: int = 100, fenced: bool = False, **changes: object
) -> BrokerImage:
    """Return broker ``number`` on a node of its own. ``epoch`` also distinguishes processes."""
    broker = BrokerImage(
        broker_id=BrokerId(number),
        broker_epoch=BrokerEpoch(epoch + number),
        incarnation_id=bytes([number % 256, epoch % 256]) * 8,
        endpoints=(Endpoint("CLIENT", f"host-{number}", 9092),),
        grpc_endpoint=f"host-{number}:9292",
        rack=None,
        node=f"node-{number}",
        fenced=fenced,
    )
    return replace(broker, **changes)  # type: ignore[arg-type]


def a_coordinator(number: int, *, epoch: int = 500) -> CoordinatorImage:
    """Return a txn-coordinator. ``epoch`` also distinguishes processes."""
    incarnation_id = bytes([number, epoch % 256]) * 8
    return CoordinatorImage(TXN, number, incarnation_id, f"txn-{number}:9492", epoch + number)


def topic_id(name: str) -> TopicId:
    """An id that belongs to a name, for tests that compare."""
    return TopicId(hashlib.sha256(name.encode()).digest()[:16])


def a_topic(
    name: str, *replicas: tuple[int, ...], configs: Mapping[str, str] | None = None
) -> TopicImage:
    """Return a topic with a partition for each tuple of replicas, all in sync."""
    assignment = [tuple(map(BrokerId, brokers)) for brokers in replicas]
    live = frozenset(broker for brokers in assignment for broker in brokers)
    return TopicImage(
        name,
        topic_id(name),
        configs or {},
        tuple(new_partition(number, item, live) for number, item in enumerate(assignment)),
    )


def a_cluster(
    *topics: TopicImage,
    brokers: tuple[BrokerImage, ...] = (),
    configs: Mapping[str, Mapping[str, str]] | None = None,
    coordinators: tuple[CoordinatorImage, ...] = (),
) -> Cluster:
    """Return a cluster, by default with three live brokers."""
    stored = StoredCluster(
        "tide",
        brokers or tuple(a_broker(n) for n in (1, 2, 3)),
        topics,
        configs or {},
        coordinators=coordinators,
    )
    return Cluster(stored, ControllerId(9), ControllerEpoch(5))


def new_topic(
    name: str, partition_count: int = 1, replication_factor: int = 1, **changes: object
) -> NewTopic:
    """Return a topic to create, with the id that belongs to its name."""
    request = NewTopic(name, topic_id(name), partition_count, replication_factor)
    return replace(request, **changes)  # type: ignore[arg-type]


def create(*topics: NewTopic, request_id: int = 1, **changes: object) -> CreateTopics:
    """Return a request to create topics, without a deadline."""
    request = CreateTopics(RequestHeader(request_id, NEVER), topics, dice=0)
    return replace(request, **changes)  # type: ignore[arg-type]


def listing(zxid: int, *brokers: BrokerImage) -> LiveListing:
    """Return a listing of brokers with a session."""
    return LiveListing(zxid, frozenset(map(incarnation_of, brokers)))


def coordinator_listing(zxid: int, *coordinators: CoordinatorImage) -> CoordinatorListing:
    """Return a listing of txn-coordinators with a session."""
    live = frozenset((one.coordinator_id, one.incarnation_id) for one in coordinators)
    return CoordinatorListing(TXN, zxid, live)


class World:
    """A machine, and a store that finishes every write at once unless it is held."""

    def __init__(
        self,
        *,
        brokers: int = 0,
        requests_waiting_max: int = 10,
        elections_at_once: int = 499,
        stored: StoredCluster | None = None,
        coordinators: tuple[CoordinatorImage, ...] = (),
        live: tuple[BrokerImage, ...] = (),
    ) -> None:
        """``live`` have a session when the first term begins."""
        self.machine = Controller(
            TopicDefaults(), Limits(requests_waiting_max, elections_at_once=elections_at_once)
        )
        self.zxid = 0
        self.held: WriteStore | None = None
        self.hold = False
        self.effects: list[Effect] = []
        self.live: dict[int, BrokerImage] = {one.broker_id: one for one in live}
        self.coordinators: dict[CoordinatorKey, CoordinatorImage] = {
            one.key: one for one in coordinators
        }
        self.elect(stored)
        for number in range(1, brokers + 1):
            self.register(a_broker(number))

    def elect(self, stored: StoredCluster | None = None, epoch: int = 1) -> list[Effect]:
        """Begin a term."""
        found = self.listing()
        elected = Elected(
            ControllerId(9),
            ControllerEpoch(epoch),
            stored or StoredCluster("tide"),
            found,
            (self.coordinator_listing(),),
        )
        return self.step(elected)

    def listing(self) -> LiveListing:
        """Return the live brokers as of now."""
        self.zxid += 1
        return listing(self.zxid, *self.live.values())

    def coordinator_listing(self) -> CoordinatorListing:
        """Return the live coordinators as of now."""
        self.zxid += 1
        return coordinator_listing(self.zxid, *self.coordinators.values())

    def step(self, stimulus: Input, now: InstantMs = NOW) -> list[Effect]:
        """Give the machine an input and write what follows. Its invariants hold after each step."""
        effects = self.machine.step(stimulus, now)
        self.machine.check()
        self.effects += effects
        for effect in tuple(effects):
            if isinstance(effect, WriteStore):
                self.held = effect
                if not self.hold:
                    effects += self.written()
        return effects

    def written(self) -> list[Effect]:
        """Finish the write under way."""
        assert self.held is not None, "nothing is being written"
        write, self.held = self.held, None
        return self.step(StoreWritten(write.write_id))

    def ask(self, request: Request) -> Reply:
        """Run one request to its reply."""
        replies = [item for item in self.step(request) if isinstance(item, Reply)]
        assert len(replies) == 1, f"one request, one reply: {replies}"
        return replies[0]

    def register(self, broker: BrokerImage, *, cluster_id: str = "", request_id: int = 1) -> Reply:
        """Create the broker's live znode, and register it."""
        self.live[broker.broker_id] = broker
        request = RequestHeader(request_id, NEVER)
        return self.ask(RegisterBroker(request, broker, cluster_id, self.listing()))

    def join(self, coordinator: CoordinatorImage) -> Reply:
        """Create the coordinator's live znode, and register it."""
        self.coordinators[coordinator.key] = coordinator
        listing = self.coordinator_listing()
        return self.ask(RegisterCoordinator(RequestHeader(1, NEVER), coordinator, "", listing))

    def leave(self, kind: str, number: int) -> list[Effect]:
        """Remove the coordinator's live znode."""
        del self.coordinators[kind, number]
        return self.step(LiveCoordinatorsChanged(self.coordinator_listing()))

    def kinds(self, effects: list[Effect]) -> list[str]:
        """Return the names of the effects, in order."""
        return [type(effect).__name__ for effect in effects]


def stored_by(world: World) -> StoredCluster:
    """Return the state that the world's controller has written."""
    image = world.machine.image
    assert image is not None, "a standby writes nothing"
    return StoredCluster(
        image.cluster_id, tuple(image.brokers.values()), tuple(image.topics.values())
    )


def applied(cluster: Cluster, change: Change | None) -> Cluster:
    """Return the cluster after a change."""
    assert change is not None, "nothing was decided"
    cluster.apply(change)
    cluster.check()
    return cluster


def delta_of(effects: list[Effect]) -> ClusterDelta:
    """The one delta that was published."""
    (published,) = [effect for effect in effects if isinstance(effect, Publish)]
    return published.delta
