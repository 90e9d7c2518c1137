"""Brokers: registration, load by the metadata image, and log directories as brokers have them."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import Field
from tidemark.client.admin.types import LogDir as ClientLogDir
from tidemark.client.errors import ClientError, error_for
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, ClusterImage

from controller.admin.cache import Aged
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, conflict, not_found
from controller.admin.log_sizes import LogTotal, directories_with, log_totals
from controller.admin.models import Model, PartitionName
from controller.admin.per_image import PerImage, sorted_names
from controller.core.unregistration import check_unregistration


class ListenerView(Model):
    """Advertised address of one listener."""

    name: str = Field(examples=["CLIENT"])
    host: str = Field(examples=["127.0.0.1"])
    port: int = Field(examples=[9092])
    security_protocol: str = Field(examples=["PLAINTEXT"])


class BrokerView(Model):
    """One registered broker. ``host`` and ``port`` are those of the listener for clients."""

    broker_id: int = Field(examples=[1])
    host: str | None = Field(examples=["127.0.0.1"])
    port: int | None = Field(examples=[9092])
    rack: str | None = Field(examples=["a"])
    node: str = Field(description="machine; it holds one replica of a partition at most")
    state: str = Field(description="online, fenced or stopping", examples=["online"])
    broker_epoch: int = Field(examples=[52])
    listeners: list[ListenerView]
    grpc_endpoint: str = Field(examples=["127.0.0.1:9292"])
    leaders: int = Field(description="partitions that it leads", examples=[20])
    replicas: int = Field(description="replicas that it has", examples=[60])
    in_sync: int = Field(description="replicas that are in sync", examples=[60])


class LogDirectory(Model):
    """One log directory of a broker."""

    path: str = Field(examples=["/var/lib/tidemark/data"])
    error: str | None = Field(description="name of Kafka's error; null if it works")
    total_bytes: int | None = Field(description="size of the file system", examples=[10**12])
    usable_bytes: int | None = Field(examples=[6 * 10**11])
    replicas: int | None = Field(
        description="null if the broker has not reported its logs yet", examples=[60]
    )
    replica_bytes: int | None = Field(
        description="sum of its logs; null if the broker has not reported them yet",
        examples=[10**9],
    )


class LogDirectories(Model):
    """Log directories of a broker, with the age of the answer."""

    broker_id: int = Field(examples=[1])
    directories: list[LogDirectory]
    age_ms: int | None = Field(description="age of the figures", examples=[120])
    problem: str | None = Field(description="reason why figures are missing or old")

    @property
    def replica_bytes(self) -> int | None:
        """Sum of all logs of the broker, None if a directory lacks its own."""
        sizes = [one.replica_bytes for one in self.directories]
        known = [one for one in sizes if one is not None]
        return sum(known) if len(known) == len(sizes) else None


class ReplicaOfBroker(PartitionName):
    """One replica of a broker."""

    broker_id: int = Field(examples=[1])
    is_leader: bool = Field(examples=[True])
    is_in_sync: bool = Field(examples=[True])


async def list_brokers(ctx: AdminContext) -> list[BrokerView]:
    """Return all registered brokers, fenced ones too, by id."""
    image = ctx.image
    loads = _loads(image)
    return [_view(image.brokers[one], loads) for one in sorted(image.brokers)]


async def get_broker(ctx: AdminContext, broker_id: int) -> BrokerView:
    """Return one broker. Raises AdminError."""
    return _view(require_broker(ctx, broker_id), _loads(ctx.image))


def require_broker(ctx: AdminContext, broker_id: int) -> BrokerImage:
    """Return one broker of the image. Raises AdminError."""
    broker = ctx.image.brokers.get(BrokerId(broker_id))
    if broker is None:
        raise not_found(
            f"broker {broker_id} is not registered",
            field="broker_id",
            remedy="GET /v3/clusters/{cluster_id}/brokers lists the brokers",
        )
    return broker


class _Loads(NamedTuple):
    """Leaders, replicas and replicas in sync, by broker."""

    leaders: Counter[int]
    replicas: Counter[int]
    in_sync: Counter[int]


def _count_loads(image: ClusterImage) -> _Loads:
    parts = [one for topic in image.topics.values() for one in topic.partitions]
    chained = itertools.chain.from_iterable
    return _Loads(
        Counter(one.leader for one in parts),
        Counter(chained(one.replicas for one in parts)),
        Counter(chained(one.isr for one in parts)),
    )


_loads: Final = PerImage(_count_loads)


def _view(broker: BrokerImage, loads: _Loads) -> BrokerView:
    clients = broker.client_endpoint()
    stopping = "stopping" if broker.shutting_down else "online"
    return BrokerView(
        broker_id=broker.broker_id,
        host=None if clients is None else clients.host,
        port=None if clients is None else clients.port,
        rack=broker.rack,
        node=broker.node,
        state="fenced" if broker.fenced else stopping,
        broker_epoch=broker.broker_epoch,
        listeners=[
            ListenerView(
                name=one.listener,
                host=one.host,
                port=one.port,
                security_protocol=one.security_protocol,
            )
            for one in broker.endpoints
        ],
        grpc_endpoint=broker.grpc_endpoint,
        leaders=loads.leaders[broker.broker_id],
        replicas=loads.replicas[broker.broker_id],
        in_sync=loads.in_sync[broker.broker_id],
    )


# -- unregistration


async def unregister(ctx: AdminContext, broker_id: int) -> None:
    """Remove the registration of a broker. Raises AdminError if it is alive or has replicas."""
    await check_unregister(ctx, broker_id)
    async with ctx.brokers.client() as admin:
        try:
            await admin.unregister_broker(broker_id)
        except ClientError as refused:
            if refused.code is not ErrorCode.POLICY_VIOLATION:
                raise
            raise _kept(refused) from None
    await ctx.until_visible(lambda image: BrokerId(broker_id) not in image.brokers)


async def check_unregister(ctx: AdminContext, broker_id: int) -> None:
    """Check by this controller's metadata that a broker may be unregistered. Raises AdminError."""
    require_broker(ctx, broker_id)
    ctx.require(Operation.ALTER, CLUSTER)
    try:
        check_unregistration(ctx.image, BrokerId(broker_id))
    except TidemarkError as refused:
        raise _kept(refused) from None


def _kept(refused: TidemarkError) -> AdminError:
    what, _, remedy = refused.message.partition("; ")
    return conflict(what, field="broker_id", remedy=remedy)


# -- log directories


async def log_dirs(ctx: AdminContext, broker_id: int, *, with_logs: bool = True) -> LogDirectories:
    """Return the log directories of one broker; ``with_logs``: with the totals of their logs, which
    may be older. Raises AdminError if it is not registered.
    """
    ctx.require(Operation.DESCRIBE)
    require_broker(ctx, broker_id)
    found = await ctx.cached("log-dirs", broker_id, lambda: directories_with(ctx, broker_id, ()))
    totals: Aged[dict[str, LogTotal]] = Aged(None)
    if with_logs:
        totals = await ctx.cached_long(
            "log-totals",
            broker_id,
            lambda: log_totals(ctx, broker_id, replica_keys(ctx, broker_id)),
        )
    ages = [one for one in (found.age_ms, totals.age_ms) if one is not None]
    return LogDirectories(
        broker_id=broker_id,
        directories=[_directory(one, totals.value) for one in found.value or ()],
        age_ms=max(ages, default=None),
        problem=found.problem or totals.problem,
    )


async def all_log_dirs(
    ctx: AdminContext, *, with_logs: bool = True
) -> Mapping[int, LogDirectories]:
    """Return the log directories of all brokers. A broker that is late has a problem."""
    ids = sorted(ctx.image.brokers)
    found = await ctx.each(ids, lambda one: log_dirs(ctx, one, with_logs=with_logs))
    return {one: answer for one, answer in found.items() if isinstance(answer, LogDirectories)}


def _directory(one: ClientLogDir, totals: Mapping[str, LogTotal] | None) -> LogDirectory:
    total = None if totals is None else totals.get(one.path, LogTotal())
    return LogDirectory(
        path=one.path,
        error=error_for(one.error_code, "").code.name if one.error_code else None,
        total_bytes=one.total_bytes if one.total_bytes >= 0 else None,
        usable_bytes=one.usable_bytes if one.usable_bytes >= 0 else None,
        replicas=None if total is None else total.logs,
        replica_bytes=None if total is None else total.size_bytes,
    )


class ReplicaRow(NamedTuple):
    """One replica of a broker, where there may be tens of thousands."""

    topic_name: str
    partition_id: int
    is_leader: bool
    is_in_sync: bool


_rows: Final[PerImage[dict[BrokerId, list[ReplicaRow]]]] = PerImage(lambda _: {})
"""Rows of the brokers that were asked for."""


def replica_rows(ctx: AdminContext, broker_id: int) -> Sequence[ReplicaRow]:
    """Return the replicas of one broker by topic and partition, sorted. Raises AdminError."""
    ctx.require(Operation.DESCRIBE)
    require_broker(ctx, broker_id)
    at, image = BrokerId(broker_id), ctx.image
    known = _rows(image)
    if at not in known:
        known[at] = [
            ReplicaRow(name, one.partition, one.leader == at, at in one.isr)
            for name in sorted_names(image)
            for one in image.topics[name].partitions
            if at in one.replicas
        ]
    return known[at]


def replica_keys(ctx: AdminContext, broker_id: int) -> list[tuple[str, int]]:
    """Return topic and partition of the replicas of one broker, sorted. Raises AdminError."""
    return [row[:2] for row in replica_rows(ctx, broker_id)]


def replicas_of(
    ctx: AdminContext, broker_id: int, keys: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], ReplicaOfBroker]:
    """Return the replicas of ``keys`` that one broker has, by topic and partition."""
    topics = ctx.image.topics
    found = {(name, number): topics[name].partitions[number] for name, number in keys}
    return {
        key: ReplicaOfBroker(
            topic_name=key[0],
            partition_id=key[1],
            broker_id=broker_id,
            is_leader=one.leader == broker_id,
            is_in_sync=broker_id in one.isr,
        )
        for key, one in found.items()
    }
