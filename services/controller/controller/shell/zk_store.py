"""State of the cluster in ZooKeeper: read as a whole when a term begins, then written by changes.

Every write is a transaction that checks the version of /controller_epoch, so that all writes of a
deposed controller fail. A write may take several transactions; each can be repeated without harm.
"""

import base64
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

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
    DropBroker,
    DropTopic,
    PutAcls,
    PutBroker,
    PutBrokerConfigs,
    PutClientMetrics,
    PutGroupConfigs,
    PutPartition,
    PutProducerIds,
    PutQuotas,
    PutShards,
    PutTopic,
    PutUser,
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
    """Another controller has been elected: no write of this term can succeed."""


class Put(NamedTuple):
    """Create or replace a znode."""

    path: str
    data: bytes


class Remove(NamedTuple):
    """Remove a znode if it exists."""

    path: str


Step = Put | Remove
Read = TypeVar("Read")


class ZkStore:
    """Store of one term, whose election left /controller_epoch at ``epoch_version``."""

    def __init__(self, session: ZkSession, epoch_version: int, *, ops_max: int = OPS_MAX) -> None:
        """``ops_max`` bounds the operations of one transaction, the check of the epoch included."""
        self._session = session
        self._epoch_version = epoch_version
        self._ops_max = ops_max
        self._present: set[str] = set()  # znodes that exist, among those written here

    async def load(self) -> StoredCluster:
        """Read the whole state. Create the cluster id if there is none, and remove partitions that
        belong to no topic.
        """
        for parent in zk_paths.PERSISTENT_PARENTS:
            await self._session.ensure_path(parent)
        cluster = await self._load_cluster()
        topics = await self._load_topics()
        await self._remove_orphans({topic.topic_id for topic in topics})
        brokers = await self._load_children(
            zk_paths.REGISTERED_BROKERS, lambda _, content: znodes.read_broker(content)
        )
        acls = await self._load_children(
            zk_paths.ACLS, lambda _, content: znodes.read_acls(content)
        )
        users = await self._load_children(
            zk_paths.USERS,
            lambda name, content: (zk_paths.user_of(name), znodes.read_user(content)),
        )
        quotas = await self._load_children(
            zk_paths.QUOTAS, lambda _, content: znodes.read_quotas(content)
        )
        shards = await self._load_children(
            zk_paths.SHARDS, lambda kind, content: (kind, znodes.read_shards(kind, content))
        )
        producer_ids, constants = await self._read([zk_paths.PRODUCER_IDS, zk_paths.CONSTANTS])
        with znodes.reading(zk_paths.PRODUCER_IDS):
            next_producer_id = 0 if producer_ids is None else int(producer_ids["next"])
        with znodes.reading(zk_paths.CLUSTER):
            cluster_id, features = cluster["cluster_id"], dict(cluster.get("features", {}))
        return StoredCluster(
            cluster_id=cluster_id,
            brokers=tuple(brokers),
            topics=tuple(topics),
            broker_configs=await self._load_configs(
                zk_paths.BROKER_CONFIGS, zk_paths.broker_of_configs
            ),
            finalized_features=features,
            next_producer_id=next_producer_id,
            coordinators=tuple(one for _, (registered, _) in shards for one in registered),
            shards={kind: owners for kind, (_, owners) in shards},
            group_configs=await self._load_configs(
                zk_paths.GROUP_CONFIGS, zk_paths.group_of_configs
            ),
            acls=dict(acls),
            constants=None if constants is None else _read_constants(constants),
            users=dict(users),
            login_secret=await self._load_login_secret(),
            quotas=dict(quotas),
            client_metrics=await self._load_configs(
                zk_paths.CLIENT_METRICS, zk_paths.subscription_of_client_metrics
            ),
        )

    async def write_constants(self, constants: Constants) -> None:
        """Write the values that all processes share. Raises as ``write``."""
        await self._write_chunk([Put(zk_paths.CONSTANTS, znodes.write_constants(constants))])

    async def _load_cluster(self) -> znodes.Content:
        (cluster,) = await self._read([zk_paths.CLUSTER])
        if cluster is not None:
            return cluster
        cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        made = {"cluster_id": cluster_id, "features": {}}
        await self._write_chunk([Put(zk_paths.CLUSTER, zk_paths.encode(made))])
        return made

    async def _load_login_secret(self) -> bytes:
        """Read the secret; make it if there is none."""
        (content,) = await self._read([zk_paths.LOGIN_SECRET])
        if content is None:
            content = {"secret": secrets.token_hex(32)}
            await self._write_chunk([Put(zk_paths.LOGIN_SECRET, zk_paths.encode(content))])
        with znodes.reading(zk_paths.LOGIN_SECRET):
            return bytes.fromhex(content["secret"])

    async def _load_topics(self) -> list[TopicImage]:
        named = await self._load_children(zk_paths.TOPICS, _read_partition_paths)
        states = iter(await self._read([path for _, _, paths in named for path in paths]))
        topics = []
        for name, content, paths in named:
            partitions = [next(states) for _ in paths]
            with znodes.reading(zk_paths.topic(name)):
                topics.append(znodes.read_topic(name, content, partitions))
            self._present.add(zk_paths.partitions_of(topics[-1].topic_id))
        return topics

    async def _load_configs(
        self, parent: str, resource_of: Callable[[str], str]
    ) -> dict[str, dict[str, str]]:
        """Return configuration by the resource that the name of a znode stands for."""
        return dict(
            await self._load_children(
                parent, lambda name, content: (resource_of(name), dict(content["configs"]))
            )
        )

    async def _load_children(
        self, parent: str, read: Callable[[str, znodes.Content], Read]
    ) -> list[Read]:
        """Return what ``read`` makes of the name and content of each child. Raises
        DamagedStoreError.
        """
        names, _ = await self._session.children(parent)
        paths = [f"{parent}/{name}" for name in names]
        found = []
        for name, path, content in zip(names, paths, await self._read(paths), strict=True):
            if content is not None:
                with znodes.reading(path):
                    found.append(read(name, content))
        return found

    async def _read(self, paths: Sequence[str]) -> list[znodes.Content | None]:
        """Return decoded contents; None for a missing znode. Raises UnknownZnodeFormatError."""
        contents: list[znodes.Content | None] = []
        for path, data in zip(paths, await self._session.get_many(paths), strict=True):
            if data is None:
                contents.append(None)
            else:
                self._present.add(path)
                contents.append(zk_paths.decode(path, data))
        return contents

    async def _remove_orphans(self, topic_ids: set[TopicId]) -> None:
        """Remove partitions of topics whose creation or deletion was not finished."""
        names, _ = await self._session.children(zk_paths.PARTITIONS)
        of_topics = {topic_id.hex() for topic_id in topic_ids}
        for name in names:
            if name not in of_topics:
                await self.write_steps(await self._removal(f"{zk_paths.PARTITIONS}/{name}"))

    async def _removal(self, parent: str) -> list[Step]:
        try:
            names, _ = await self._session.children(parent)
        except NoNodeError:
            return []
        paths = [*(f"{parent}/{name}" for name in names), parent]
        self._present.update(paths)
        return [Remove(path) for path in paths]

    async def _broker_steps(self, op: PutBroker | DropBroker) -> list[Step]:
        if isinstance(op, PutBroker):
            path = zk_paths.registered_broker(op.broker.broker_id)
            return [Put(path, znodes.write_broker(op.broker))]
        names, _ = await self._session.children(zk_paths.ENDED_BROKERS)
        paths = [
            zk_paths.LiveBroker(*one).ended_path
            for one in _incarnations(names, zk_paths.ENDED_BROKERS)
            if one.broker_id == op.broker_id
        ]
        paths.append(zk_paths.registered_broker(op.broker_id))
        self._present.update(paths)
        return [Remove(path) for path in paths]

    async def live_brokers(self, on_change: OnChange | None = None) -> LiveListing:
        """Return the brokers with a session, and those that have ended, as this ZooKeeper server
        has them. To see the newest ones, ``sync`` first.

        An end is recorded with the removal of the live znode: read later, it is not missed.
        """
        names, stat = await self._session.children(zk_paths.LIVE_BROKERS, on_change)
        ended, _ = await self._session.children(zk_paths.ENDED_BROKERS)
        return LiveListing(
            stat.children_zxid,
            frozenset(_incarnations(names, zk_paths.LIVE_BROKERS)),
            frozenset(_incarnations(ended, zk_paths.ENDED_BROKERS)),
        )

    async def live_coordinators(
        self, kind: str, on_change: OnChange | None = None
    ) -> CoordinatorListing:
        """Return the coordinators of one kind with a session, likewise."""
        parent = zk_paths.live_coordinators(kind)
        names, stat = await self._session.children(parent, on_change)
        live = frozenset(_coordinators(kind, names))
        return CoordinatorListing(kind, stat.children_zxid, live)

    # -- writing

    async def remove_live(self, live: zk_paths.LiveZnode, version: int = -1) -> None:
        """Fence a process: remove its live znode, if that exists. ``version`` is that of its
        content; -1 means any.

        Raises FencedError, BadVersionError. After another ZkError the znode may or may not be
        removed: look before it is repeated, because the process may make it again.
        """
        try:
            await self._session.multi([*self._check(), Delete(live.path, version)])
        except BadVersionError as error:
            epoch = await self._session.exists(zk_paths.CONTROLLER_EPOCH)
            if version >= 0 and epoch is not None and epoch.version == self._epoch_version:
                raise
            raise FencedError(f"the controller epoch has moved on: {error}") from None
        except NoNodeError:
            return

    async def write(self, ops: Iterable[StoreOp]) -> None:
        """Write all, in order. Raises FencedError; after another ZkError the outcome is unknown."""
        await self.write_steps(await self.plan(ops))

    async def plan(self, ops: Iterable[StoreOp]) -> list[Step]:
        """Return the znodes to write for these changes, in order."""
        steps: list[Step] = []
        parents: set[str] = set()
        for op in ops:
            if isinstance(op, PutPartition):
                parent = zk_paths.partitions_of(op.topic_id)
                if parent not in self._present and parent not in parents:
                    parents.add(parent)
                    steps.append(Put(parent, b""))
            steps += await self._steps(op)
        return steps

    async def _steps(self, op: StoreOp) -> list[Step]:
        match op:
            case PutBroker() | DropBroker():
                return await self._broker_steps(op)
            case PutPartition(topic_id, partition):
                path = zk_paths.partition(topic_id, partition.partition)
                return [Put(path, znodes.write_partition(partition))]
            case PutTopic(topic):
                return [Put(zk_paths.topic(topic.name), znodes.write_topic(topic))]
            case DropTopic(topic):
                parent = zk_paths.partitions_of(topic.topic_id)
                return [Remove(zk_paths.topic(topic.name)), *await self._removal(parent)]
            case PutBrokerConfigs() | PutGroupConfigs() | PutClientMetrics():
                return [_configs_step(op)]
            case PutAcls() | PutUser() | PutQuotas():
                return [_access_step(op)]
            case PutProducerIds(following):
                return [Put(zk_paths.PRODUCER_IDS, zk_paths.encode({"next": following}))]
            case PutShards(kind, coordinators, owners):
                return [Put(zk_paths.shards(kind), znodes.write_shards(coordinators, owners))]

    async def write_steps(self, steps: Sequence[Step]) -> None:
        """Write planned steps. Raises as ``write``."""
        for chunk in chunks(steps, self._ops_max):
            await self._write_chunk(chunk)

    async def _write_chunk(self, chunk: Sequence[Step]) -> None:
        """Write in one transaction. After an unexpected or unknown outcome the znodes are read
        again before the next attempt.
        """
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
        """Yield the operations that make the znodes as the steps have them."""
        made = set()
        for step in chunk:
            exists = step.path in self._present or step.path in made
            match step:
                case Put(path, data):
                    if not exists:
                        yield Create(path, data)
                    elif data:
                        yield SetData(path, data)
                    made.add(path)
                case Remove(path):
                    if exists:
                        yield Delete(path)

    async def _learn(self, chunk: Sequence[Step]) -> None:
        """Read which znodes of a chunk exist. Raises FencedError."""
        await self._session.sync(zk_paths.CONTROLLER_EPOCH)
        stat = await self._session.exists(zk_paths.CONTROLLER_EPOCH)
        if stat is None or stat.version != self._epoch_version:
            raise FencedError("another controller has been elected")
        paths = [step.path for step in chunk]
        for path, data in zip(paths, await self._session.get_many(paths), strict=True):
            if data is None:
                self._present.discard(path)
            else:
                self._present.add(path)

    def _remember(self, chunk: Sequence[Step]) -> None:
        for step in chunk:
            if isinstance(step, Put):
                self._present.add(step.path)
            else:
                self._present.discard(step.path)


def _incarnations(names: Iterable[str], parent: str) -> Iterator[Incarnation]:
    for name in names:
        try:
            live = zk_paths.LiveBroker.parse(name, parent)
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
    """Read the constants as last written; None if no controller has been active yet."""
    try:
        data, _ = await session.get(zk_paths.CONSTANTS)
    except NoNodeError:
        return None
    return _read_constants(zk_paths.decode(zk_paths.CONSTANTS, data))


def _read_constants(content: znodes.Content) -> Constants:
    with znodes.reading(zk_paths.CONSTANTS):
        return znodes.read_constants(content)


def _read_partition_paths(
    name: str, content: znodes.Content
) -> tuple[str, znodes.Content, list[str]]:
    """Return name and content of a topic, and the znodes of its partitions."""
    topic_id = znodes.topic_id_of(content)
    return name, content, [zk_paths.partition(topic_id, n) for n in range(len(content["replicas"]))]


def _configs_step(op: PutBrokerConfigs | PutGroupConfigs | PutClientMetrics) -> Step:
    match op:
        case PutBrokerConfigs(broker, configs):
            path = zk_paths.broker_configs(broker)
        case PutGroupConfigs(group, configs):
            path = zk_paths.group_configs(group)
        case PutClientMetrics(subscription, configs):
            path = zk_paths.client_metrics(subscription)
    return Put(path, zk_paths.encode({"configs": dict(configs)})) if configs else Remove(path)


def _access_step(op: PutAcls | PutUser | PutQuotas) -> Step:
    if isinstance(op, PutAcls):
        path = zk_paths.acls(op.pattern)
        return Put(path, znodes.write_acls(*op)) if op.entries else Remove(path)
    if isinstance(op, PutQuotas):
        path = zk_paths.quotas(op.entity)
        return Put(path, znodes.write_quotas(*op)) if op.values else Remove(path)
    path = zk_paths.user(op.user)
    return Put(path, znodes.write_user(op.credentials)) if op.credentials else Remove(path)


def chunks(steps: Sequence[Step], ops_max: int = OPS_MAX) -> Iterator[list[Step]]:
    """Yield chunks that each fit in a transaction, with the check of the epoch."""
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
