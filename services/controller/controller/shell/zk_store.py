"""The cluster's state in ZooKeeper: read whole when a term begins, then written change by change.

Every write is a transaction that checks the version of /controller_epoch, so that a deposed
controller's writes fail whatever it believes. A write may take several transactions; each can be
repeated without harm.
"""

import base64
import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from tidemark.model.ids import TopicId
from tidemark.model.metadata import TopicImage
from tidemark.runtime import zk_paths
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OnChange,
    Op,
    SetData,
    UnknownOutcomeError,
    ZkError,
    ZkSession,
)

from controller.core.cluster import (
    DropTopic,
    PutBroker,
    PutBrokerConfigs,
    PutGroupConfigs,
    PutPartition,
    PutProducerIds,
    PutShards,
    PutTopic,
    StoredCluster,
    StoreOp,
)
from controller.core.constants import Constants
from controller.core.liveness import CoordinatorListing, Incarnation, LiveListing
from controller.shell import znodes

log = logging.getLogger(__name__)

OPS_MAX: Final = 500
BYTES_MAX: Final = 512 * 1024
_OP_OVERHEAD_BYTES: Final = 64
_ATTEMPTS_MAX: Final = 10


class FencedError(ZkError):
    """Another controller has been elected: nothing will ever be written in this term again."""


class Put(NamedTuple):
    """Make or replace a znode."""

    path: str
    data: bytes


class Remove(NamedTuple):
    """Remove a znode if it is there."""

    path: str


Step = Put | Remove


class ZkStore:
    """The store of one term, whose election left /controller_epoch at ``epoch_version``."""

    def __init__(self, session: ZkSession, epoch_version: int, *, ops_max: int = OPS_MAX) -> None:
        """``ops_max`` bounds the operations of one transaction, the check of the epoch included."""
        self._session = session
        self._epoch_version = epoch_version
        self._ops_max = ops_max
        self._known: set[str] = set()  # znodes that exist, among those written here

    async def load(self) -> StoredCluster:
        """Everything; makes the cluster id where there is none, removes what is of no topic."""
        for parent in zk_paths.PERSISTENT_PARENTS:
            await self._session.ensure_path(parent)
        cluster = await self._load_cluster()
        topics = await self._load_topics()
        await self._remove_orphans({topic.topic_id for topic in topics})
        brokers = await self._load_children(zk_paths.REGISTERED_BROKERS)
        configs = await self._load_children(zk_paths.BROKER_CONFIGS)
        group_configs = await self._load_children(zk_paths.GROUP_CONFIGS)
        shards = {
            kind: znodes.read_shards(kind, content)
            for kind, content in await self._load_children(zk_paths.SHARDS)
        }
        producer_ids, constants = await self._read([zk_paths.PRODUCER_IDS, zk_paths.CONSTANTS])
        return StoredCluster(
            cluster_id=cluster["cluster_id"],
            brokers=tuple(znodes.read_broker(content) for _, content in brokers),
            topics=tuple(topics),
            broker_configs={
                zk_paths.broker_of_configs(name): dict(content["configs"])
                for name, content in configs
            },
            finalized_features=dict(cluster.get("features", {})),
            next_producer_id=0 if producer_ids is None else int(producer_ids["next"]),
            coordinators=tuple(one for found, _ in shards.values() for one in found),
            shards={kind: owners for kind, (_, owners) in shards.items()},
            group_configs={
                zk_paths.group_of_configs(name): dict(content["configs"])
                for name, content in group_configs
            },
            constants=None if constants is None else znodes.read_constants(constants),
        )

    async def write_constants(self, constants: Constants) -> None:
        """As ``write``, of what every process must have the same."""
        await self._write_chunk([Put(zk_paths.CONSTANTS, znodes.write_constants(constants))])

    async def _load_cluster(self) -> dict[str, Any]:
        (found,) = await self._read([zk_paths.CLUSTER])
        if found is not None:
            return found
        cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        made = {"cluster_id": cluster_id, "features": {}}
        await self._write_chunk([Put(zk_paths.CLUSTER, zk_paths.encode(made))])
        return made

    async def _load_topics(self) -> list[TopicImage]:
        named = await self._load_children(zk_paths.TOPICS)
        paths = [
            zk_paths.partition(znodes.topic_id_of(content), number)
            for _, content in named
            for number in range(len(content["replicas"]))
        ]
        states = iter(await self._read(paths))
        topics = []
        for name, content in named:
            topic_id = znodes.topic_id_of(content)
            self._known.add(zk_paths.partitions_of(topic_id))
            partitions = [next(states) for _ in content["replicas"]]
            topics.append(znodes.read_topic(name, content, partitions))
        return topics

    async def _load_children(self, parent: str) -> list[tuple[str, dict[str, Any]]]:
        names, _ = await self._session.children(parent)
        contents = await self._read([f"{parent}/{name}" for name in names])
        return [
            (name, content)
            for name, content in zip(names, contents, strict=True)
            if content is not None
        ]

    async def _read(self, paths: Sequence[str]) -> list[dict[str, Any] | None]:
        """Contents, decoded; None for what is not there. Raises UnknownZnodeFormatError."""
        found: list[dict[str, Any] | None] = []
        for path, data in zip(paths, await self._session.get_many(paths), strict=True):
            if data is None:
                found.append(None)
            else:
                self._known.add(path)
                found.append(zk_paths.decode(path, data))
        return found

    async def _remove_orphans(self, topic_ids: set[TopicId]) -> None:
        """Partitions of a topic whose making or removal was cut short."""
        names, _ = await self._session.children(zk_paths.PARTITIONS)
        known = {topic_id.hex() for topic_id in topic_ids}
        for name in names:
            if name not in known:
                await self.write_steps(await self._removal(f"{zk_paths.PARTITIONS}/{name}"))

    async def _removal(self, parent: str) -> list[Step]:
        try:
            names, _ = await self._session.children(parent)
        except NoNodeError:
            return []
        paths = [*(f"{parent}/{name}" for name in names), parent]
        self._known.update(paths)
        return [Remove(path) for path in paths]

    async def live_brokers(self, on_change: OnChange | None = None) -> LiveListing:
        """Who has a session, as this server knows it; ``sync`` first where that matters."""
        names, stat = await self._session.children(zk_paths.LIVE_BROKERS, on_change)
        return LiveListing(stat.children_zxid, frozenset(_incarnations(names)))

    async def live_coordinators(
        self, kind: str, on_change: OnChange | None = None
    ) -> CoordinatorListing:
        """The same of one kind of coordinators."""
        parent = zk_paths.live_coordinators(kind)
        names, stat = await self._session.children(parent, on_change)
        live = frozenset(_coordinators(kind, names))
        return CoordinatorListing(kind, stat.children_zxid, live)

    # Writing.

    async def remove_live(self, live: zk_paths.LiveZnode) -> None:
        """Fence an incarnation: its live znode is gone afterwards, whoever removed it.

        Raises FencedError; after another ZkError it may or may not be gone: repeat.
        """
        try:
            await self._session.multi([*self._check(), Delete(live.path)])
        except BadVersionError as error:
            raise FencedError(f"the controller epoch has moved on: {error}") from None
        except NoNodeError:
            return

    async def write(self, ops: Iterable[StoreOp]) -> None:
        """Write all, in order. Raises FencedError; after another ZkError the outcome is unknown."""
        await self.write_steps(await self.plan(ops))

    async def plan(self, ops: Iterable[StoreOp]) -> list[Step]:
        """The znodes to write for these changes, in order."""
        steps: list[Step] = []
        parents: set[str] = set()
        for op in ops:
            if isinstance(op, PutPartition):
                parent = zk_paths.partitions_of(op.topic_id)
                if parent not in self._known and parent not in parents:
                    parents.add(parent)
                    steps.append(Put(parent, b""))
            steps += await self._steps(op)
        return steps

    async def _steps(self, op: StoreOp) -> list[Step]:
        match op:
            case PutBroker(broker):
                path = zk_paths.registered_broker(broker.broker_id)
                return [Put(path, znodes.write_broker(broker))]
            case PutPartition(topic_id, partition):
                path = zk_paths.partition(topic_id, partition.partition)
                return [Put(path, znodes.write_partition(partition))]
            case PutTopic(topic):
                return [Put(zk_paths.topic(topic.name), znodes.write_topic(topic))]
            case DropTopic(topic):
                parent = zk_paths.partitions_of(topic.topic_id)
                return [Remove(zk_paths.topic(topic.name)), *await self._removal(parent)]
            case PutBrokerConfigs(broker, configs):
                data = zk_paths.encode({"configs": dict(configs)})
                return [Put(zk_paths.broker_configs(broker), data)]
            case PutGroupConfigs(group, configs):
                path = zk_paths.group_configs(group)
                data = zk_paths.encode({"configs": dict(configs)})
                return [Put(path, data) if configs else Remove(path)]
            case PutProducerIds(following):
                return [Put(zk_paths.PRODUCER_IDS, zk_paths.encode({"next": following}))]
            case PutShards(kind, coordinators, owners):
                return [Put(zk_paths.shards(kind), znodes.write_shards(coordinators, owners))]

    async def write_steps(self, steps: Sequence[Step]) -> None:
        """Write what was planned, as ``write`` does."""
        for chunk in chunks(steps, self._ops_max):
            await self._write_chunk(chunk)

    async def _write_chunk(self, chunk: Sequence[Step]) -> None:
        """One transaction. What is not known for sure is read again before it is tried again."""
        learn = False
        reason: ZkError | None = None
        for _ in range(_ATTEMPTS_MAX):
            try:
                if learn:
                    await self._learn(chunk)
                await self._session.multi([*self._check(), *self._ops(chunk)])
            except BadVersionError as error:
                raise FencedError(f"the controller epoch has moved on: {error}") from None
            except (NodeExistsError, NoNodeError, NotEmptyError) as error:
                learn, reason = True, error
            except UnknownOutcomeError as error:
                learn, reason = True, error
                await self._session.wait_connected()
            else:
                self._remember(chunk)
                return
        raise ZkError(f"a write failed {_ATTEMPTS_MAX} times, last: {reason}")

    def _check(self) -> Iterator[Op]:
        yield Check(zk_paths.CONTROLLER_EPOCH, self._epoch_version)

    def _ops(self, chunk: Sequence[Step]) -> Iterator[Op]:
        """What turns what is there into what should be."""
        there = set()
        for step in chunk:
            exists = step.path in self._known or step.path in there
            match step:
                case Put(path, data):
                    if not exists:
                        yield Create(path, data)
                    elif data:
                        yield SetData(path, data)
                    there.add(path)
                case Remove(path):
                    if exists:
                        yield Delete(path)

    async def _learn(self, chunk: Sequence[Step]) -> None:
        """Read again what a chunk is about. Raises FencedError."""
        await self._session.sync(zk_paths.CONTROLLER_EPOCH)
        stat = await self._session.exists(zk_paths.CONTROLLER_EPOCH)
        if stat is None or stat.version != self._epoch_version:
            raise FencedError("another controller has been elected")
        paths = [step.path for step in chunk]
        for path, data in zip(paths, await self._session.get_many(paths), strict=True):
            if data is None:
                self._known.discard(path)
            else:
                self._known.add(path)

    def _remember(self, chunk: Sequence[Step]) -> None:
        for step in chunk:
            if isinstance(step, Put):
                self._known.add(step.path)
            else:
                self._known.discard(step.path)


def _incarnations(names: Iterable[str]) -> Iterator[Incarnation]:
    for name in names:
        try:
            live = zk_paths.LiveBroker.parse(name)
        except zk_paths.UnknownZnodeFormatError as error:
            log.warning("znode ignored", extra=fields(reason=str(error)))
        else:
            yield Incarnation(live.broker_id, live.incarnation_id)


def _coordinators(kind: str, names: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    for name in names:
        try:
            live = zk_paths.LiveCoordinator.parse(kind, name)
        except zk_paths.UnknownZnodeFormatError as error:
            log.warning("znode ignored", extra=fields(reason=str(error)))
        else:
            yield live.coordinator_id, live.incarnation_id


async def load_constants(session: ZkSession) -> Constants | None:
    """As last written; None where no controller was active yet."""
    try:
        data, _ = await session.get(zk_paths.CONSTANTS)
    except NoNodeError:
        return None
    return znodes.read_constants(zk_paths.decode(zk_paths.CONSTANTS, data))


def chunks(steps: Sequence[Step], ops_max: int = OPS_MAX) -> Iterator[list[Step]]:
    """Cut so that each fits in a transaction, the check of the epoch included."""
    chunk: list[Step] = []
    size_bytes = 0
    for step in steps:
        data = step.data if isinstance(step, Put) else b""
        step_bytes = len(step.path) + len(data) + _OP_OVERHEAD_BYTES
        if chunk and (len(chunk) + 1 >= ops_max or size_bytes + step_bytes > BYTES_MAX):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(step)
        size_bytes += step_bytes
    if chunk:
        yield chunk
