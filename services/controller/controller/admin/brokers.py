"""Brokers: registration, load by the metadata image, and log directories as brokers have them."""

from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import Field
from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.types import LogDir as ClientLogDir
from tidemark.client.errors import error_for
from tidemark.kafka.apis import ApiKey
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, ClusterImage

from controller.admin.cache import Aged
from controller.admin.context import AdminContext
from controller.admin.errors import from_cluster, not_found
from controller.admin.models import Model, PartitionName

NODES_AT_ONCE_MAX = 1_024


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
    replicas: int = Field(examples=[60])
    replica_bytes: int = Field(description="sum of its logs", examples=[10**9])


class LogDirectories(Model):
    """Log directories of a broker, with the age of the answer."""

    broker_id: int = Field(examples=[1])
    directories: list[LogDirectory]
    age_ms: int | None = Field(description="age of the figures", examples=[120])
    problem: str | None = Field(description="reason why figures are missing or old")


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


def _loads(image: ClusterImage) -> tuple[Counter[int], Counter[int], Counter[int]]:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in image.topics.values():
        for one in topic.partitions:
            leaders[one.leader] += 1
            replicas.update(one.replicas)
            in_sync.update(one.isr)
    return leaders, replicas, in_sync


def _view(
    broker: BrokerImage, loads: tuple[Counter[int], Counter[int], Counter[int]]
) -> BrokerView:
    clients = next((one for one in broker.endpoints if one.listener != "INTERNAL"), None)
    leaders, replicas, in_sync = loads
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
        leaders=leaders[broker.broker_id],
        replicas=replicas[broker.broker_id],
        in_sync=in_sync[broker.broker_id],
    )


# -- log directories


async def raw_log_dirs(ctx: AdminContext, broker_id: int) -> Aged[list[ClientLogDir]]:
    """Return the log directories of one broker as it reports them, with their age."""

    async def fetch() -> list[ClientLogDir]:
        answer = await ctx.brokers.ask(broker_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
        if answer.error_code:
            raise from_cluster(error_for(answer.error_code, "describing log directories failed"))
        return admin_requests.read_log_dirs(broker_id, answer)

    return await ctx.cached("log-dirs", broker_id, fetch)


async def log_dirs(ctx: AdminContext, broker_id: int) -> LogDirectories:
    """Return the log directories of one broker. Raises AdminError if it is not registered."""
    require_broker(ctx, broker_id)
    found = await raw_log_dirs(ctx, broker_id)
    return LogDirectories(
        broker_id=broker_id,
        directories=[_directory(one) for one in found.value or ()],
        age_ms=found.age_ms,
        problem=found.problem,
    )


async def all_log_dirs(ctx: AdminContext) -> Mapping[int, LogDirectories]:
    """Return the log directories of all brokers. A broker that is late has a problem."""
    ids = sorted(ctx.image.brokers)
    found = await ctx.each(ids, lambda one: log_dirs(ctx, one))
    return {one: answer for one, answer in found.items() if isinstance(answer, LogDirectories)}


def _directory(one: ClientLogDir) -> LogDirectory:
    return LogDirectory(
        path=one.path,
        error=error_for(one.error_code, "").code.name if one.error_code else None,
        total_bytes=one.total_bytes if one.total_bytes >= 0 else None,
        usable_bytes=one.usable_bytes if one.usable_bytes >= 0 else None,
        replicas=len(one.replicas),
        replica_bytes=sum(each.size_bytes for each in one.replicas.values()),
    )


def replica_keys(ctx: AdminContext, broker_id: int) -> list[tuple[str, int]]:
    """Return topic and partition of the replicas of one broker, sorted. Raises AdminError."""
    require_broker(ctx, broker_id)
    topics = ctx.image.topics
    return [
        (name, one.partition)
        for name in sorted(topics)
        for one in topics[name].partitions
        if broker_id in one.replicas
    ]


def replicas_of(
    ctx: AdminContext, broker_id: int, keys: Iterable[tuple[str, int]] | None = None
) -> dict[tuple[str, int], ReplicaOfBroker]:
    """Return the replicas of one broker by topic and partition: of ``keys``, or all, sorted. Raises
    AdminError.
    """
    topics = ctx.image.topics
    wanted = replica_keys(ctx, broker_id) if keys is None else keys
    found = {(name, number): topics[name].partitions[number] for name, number in wanted}
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
