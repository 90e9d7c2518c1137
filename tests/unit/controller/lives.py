"""Terms of controllers, one after the other, over one tree of znodes. Each may end after any of its
ZooKeeper transactions, and the next one begins with the tree as it is.
"""

import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from controller.core.controller import Controller
from controller.core.effects import Effect, Publish, Reply, WriteStore
from controller.core.inputs import (
    Elected,
    FeedAcknowledged,
    FeedRegained,
    Input,
    LiveBrokersChanged,
    LiveCoordinatorsChanged,
    RegisterBroker,
    RegisterCoordinator,
    Request,
    RequestHeader,
    StoreWritten,
    Tick,
)
from controller.core.limits import Limits
from controller.core.topics import TopicDefaults
from controller.shell.zk_store import OPS_MAX, ZkStore
from sim.zk_adapter import SimZkSession
from sim.znode_tree import Draft, Tree, require_znode
from sim.zookeeper import stat_of
from tidemark.model.ids import ControllerEpoch, ControllerId, InstantMs
from tidemark.model.metadata import (
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    CoordinatorImage,
    PartitionImage,
)
from tidemark.runtime import zk_paths
from tidemark.runtime.zk_session import (
    Create,
    NodeExistsError,
    OnChange,
    Op,
    SessionState,
    SetData,
    ZnodeStat,
)
from unit.controller.worlds import NEVER, coordinator_listing, listing

T = TypeVar("T")
LEASE_MS = 3_000


class CutOff(BaseException):
    """The controller died when this transaction was committed, and never knew it."""


class TreeSession(SimZkSession):
    """A session with a tree that answers at once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.session_timeout_ms = 9_000
        self.left: int | None = None
        """Transactions until the process dies; None: it does not."""
        self.written = 0
        self.on_commit: Callable[[], None] = lambda: None

    @property
    def state(self) -> SessionState:
        return SessionState.CONNECTED

    def _run(self, ops: Sequence[Op]) -> list[ZnodeStat | None]:
        draft = Draft(self.tree, self.tree.zxid + 1, 1)
        found = draft.run(ops)
        self.tree.apply(draft.transaction())
        return [None if one is None else stat_of(one) for one in found]

    async def get(self, path: str, on_change: OnChange | None = None) -> tuple[bytes, ZnodeStat]:
        znode = require_znode(self.tree.znodes.get(path), path)
        return znode.data, stat_of(znode)

    async def exists(self, path: str, on_change: OnChange | None = None) -> ZnodeStat | None:
        znode = self.tree.znodes.get(path)
        return None if znode is None else stat_of(znode)

    async def children(
        self, path: str, on_change: OnChange | None = None
    ) -> tuple[list[str], ZnodeStat]:
        return self.tree.children(path), stat_of(self.tree.znodes[path])

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        found = [self.tree.znodes.get(path) for path in paths]
        return [None if one is None else one.data for one in found]

    async def sync(self, path: str) -> None:
        return

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._run([Create(path, data, ephemeral)])

    async def set(self, path: str, data: bytes, *, version: int = -1) -> ZnodeStat:
        (stat,) = self._run([SetData(path, data, version)])
        assert stat is not None
        return stat

    async def multi(self, ops: Sequence[Op]) -> list[ZnodeStat | None]:
        stats = self._run(ops)
        self.written += 1
        self.on_commit()
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise CutOff
        return stats


def finish(work: Awaitable[T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.__await__().__next__()
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise AssertionError("it waits")


class Life:
    """One controller's term, from the reading of the tree to its end."""

    def __init__(
        self,
        tree: Tree,
        live: Iterable[BrokerImage] = (),
        coordinators: Iterable[CoordinatorImage] = (),
        *,
        ops_max: int = OPS_MAX,
        rebalance_ms: int = 0,
    ) -> None:
        self.session = TreeSession(tree)
        self.live = {one.broker_id: one for one in live}
        self.coordinators = {one.key: one for one in coordinators}
        self.now = InstantMs(1_000)
        self.replies: list[Reply] = []
        self.seen: list[type] = []
        self.deltas: list[ClusterDelta] = []
        self.ops: list[type] = []
        epoch = self._raise_epoch()
        self.store = ZkStore(self.session, epoch, ops_max=ops_max)
        self.machine = Controller(
            TopicDefaults(), Limits(lease_ms=LEASE_MS, rebalance_interval_ms=rebalance_ms)
        )
        stored = finish(self.store.load())
        self.session.written = 0
        self.begin = Elected(
            ControllerId(1),
            ControllerEpoch(epoch + 1),
            stored,
            self.listing(),
            (coordinator_listing(1, *self.coordinators.values()),),
        )

    def _raise_epoch(self) -> int:
        try:
            finish(self.session.create(zk_paths.CONTROLLER_EPOCH, b"{}"))
        except NodeExistsError:
            return finish(self.session.set(zk_paths.CONTROLLER_EPOCH, b"{}")).version
        return 0

    def start(self) -> None:
        """Begin the term, with a stream of every live broker."""
        self.step(self.begin)
        for broker in tuple(self.live.values()):
            self.step(FeedRegained(broker.broker_epoch))

    @property
    def tree(self) -> Tree:
        return self.session.tree

    @property
    def image(self) -> ClusterImage:
        assert self.machine.image is not None, "no longer active"
        return self.machine.image

    def listing(self) -> Any:
        """Return the live brokers as of now."""
        return listing(self.session.tree.zxid, *self.live.values())

    def step(self, stimulus: Input) -> list[Effect]:
        """Give the machine an input, and write all that follows."""
        self.seen.append(type(stimulus))
        effects = self.machine.step(stimulus, self.now)
        self.machine.check()
        for effect in tuple(effects):
            if isinstance(effect, Reply):
                self.replies.append(effect)
            elif isinstance(effect, Publish):
                self.deltas.append(effect.delta)
                self.published(effect)
            elif isinstance(effect, WriteStore):
                self.ops += map(type, effect.ops)
                finish(self.store.write(effect.ops))
                effects += self.step(StoreWritten(effect.write_id))
        return effects

    def published(self, published: Publish) -> None:
        """Take what is published, before anything else happens."""

    def ask(self, make: Callable[[RequestHeader], Request]) -> Reply:
        """Run one request to its reply."""
        before = len(self.replies)
        self.step(make(RequestHeader(before, NEVER)))
        return self.replies[before]

    def register(self, broker: BrokerImage) -> Reply:
        """Register a broker with a live znode and a stream; its predecessor's znode is gone."""
        self.live[broker.broker_id] = broker
        reply = self.ask(lambda header: RegisterBroker(header, broker, "", self.listing()))
        self.step(FeedRegained(broker.broker_epoch))
        return reply

    def join(self, coordinator: CoordinatorImage) -> Reply:
        """Register a coordinator, likewise."""
        self.coordinators[coordinator.key] = coordinator
        found = coordinator_listing(self.tree.zxid, *self.coordinators.values())
        return self.ask(lambda header: RegisterCoordinator(header, coordinator, "", found))

    def lose(self, broker_id: int) -> None:
        """Remove a broker's live znode."""
        self.live = {key: one for key, one in self.live.items() if key != broker_id}
        self.step(LiveBrokersChanged(self.listing()))

    def leave(self, number: int) -> None:
        """Remove a coordinator's live znode."""
        self.coordinators = {key: one for key, one in self.coordinators.items() if key[1] != number}
        found = coordinator_listing(self.tree.zxid, *self.coordinators.values())
        self.step(LiveCoordinatorsChanged(found))

    def settle(self) -> None:
        """Let brokers acknowledge the feed and leases expire, until nothing changes."""
        for _ in range(20):
            before = self.session.written
            for broker in tuple(self.live.values()):
                self.step(FeedAcknowledged(broker.broker_epoch, self.image.position))
            self.now = InstantMs(self.now + LEASE_MS)
            self.step(Tick())
            if self.session.written == before:
                return
        raise AssertionError("it never settles")


Script = Callable[[Life], None]


def lived(life: Life, script: Script) -> Life:
    """Run a term to its end."""
    life.start()
    script(life)
    life.settle()
    return life


def next_life(life: Life, **options: Any) -> Life:
    """Return the term of the next controller, over a copy of the tree."""
    return Life(copy.deepcopy(life.tree), life.live.values(), life.coordinators.values(), **options)


def cut_lives(before: Life, script: Script, **options: Any) -> Iterator[tuple[int, Life]]:
    """Yield for each transaction of a script the term of a controller that follows one which ended
    after that transaction, and that gets all inputs again.
    """
    whole = lived(next_life(before, **options), script)
    for left in range(1, whole.session.written + 1):
        yield left, cut_life(before, script, left, **options)


def cut_life(before: Life, script: Script, left: int, **options: Any) -> Life:
    """Return one of them."""
    first = next_life(before, **options)
    first.session.left = left
    with suppress(CutOff):
        lived(first, script)
    return lived(next_life(first, **options), script)


def without_epochs(image: ClusterImage) -> list[object]:
    """Return the parts of an image that do not depend on terms that ended early."""
    topics = sorted(image.topics.values(), key=lambda topic: topic.name)
    return [
        dict(image.brokers),
        [(one.name, one.topic_id, one.configs, list(map(_bare, one.partitions))) for one in topics],
        dict(image.broker_configs),
        dict(image.group_configs),
        dict(image.client_metrics),
        dict(image.users),
        dict(image.quotas),
        sorted(image.coordinators),
        {kind: [one.coordinator_id for one in owners] for kind, owners in image.shards.items()},
    ]


def _bare(partition: PartitionImage) -> PartitionImage:
    same = {"leader_epoch": 0, "partition_epoch": 0, "leader": 0, "last_known_leader": 0}
    return replace(partition, **same)  # type: ignore[arg-type]
