"""Settings of the clients: Kafka's names in snake_case, times in ms, sizes in bytes."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeVar

from tidemark.client.errors import ClientConfigError
from tidemark.client.security_config import SecurityConfig
from tidemark.codec.varint import INT32_MAX, INT32_MIN
from tidemark.model.errors import ErrorCode
from tidemark.model.scram import MECHANISM_NAMES

KIB: Final = 1024
MIB: Final = 1024 * KIB
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5

Transport = Literal["kafka", "grpc"]
Acks = Literal["all", 0, 1, -1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
OffsetReset = Literal["earliest", "latest", "none"]
OffsetsStorage = Literal["tidemark", "kafka", "ads", "zookeeper"]
"""Storage of a group's offsets: ``__consumer_offsets`` (three names for it) or ZooKeeper."""
IsolationLevel = Literal["read_uncommitted", "read_committed"]
AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]

COMPRESSION_CODES: Final[Mapping[str, int]] = {
    "none": 0,
    "gzip": 1,
    "snappy": 2,
    "lz4": 3,
    "zstd": 4,
}
_LEVELS: Final[Mapping[str, tuple[int, int]]] = {
    "gzip": (-1, 9),
    "zstd": (INT32_MIN, 22),
}
_INT32: Final = (
    "request_timeout_ms",
    "transaction_timeout_ms",
    "fetch_min_bytes",
    "fetch_max_wait_ms",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "max_poll_interval_ms",
)
"""Settings that requests carry as int32."""
ACQUIRE_MODES: Final[Mapping[str, int]] = {"batch_optimized": 0, "record_limit": 1}
_ACKNOWLEDGEMENT: Final = ("implicit", "explicit")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(SecurityConfig):
    """Settings of every client."""

    transport: Transport = "kafka"
    """``kafka`` is Kafka's protocol; with ``grpc`` bootstrap servers are gRPC addresses."""
    client_id: str = "tidemark-python"
    request_timeout_ms: int = 30_000
    """Time after which an unanswered request closes its connection."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    """Delays between attempts double from ``retry_backoff_ms`` up to this, with 20 % of jitter."""
    metadata_max_age_ms: int = 300_000
    unknown_topic_grace_ms: int = 5_000
    """Time for which an unknown topic is retried: a new topic reaches brokers one by one."""
    connections_setup_timeout_ms: int = 10_000
    response_bytes_max: int = 128 * MIB
    """Largest response frame; a longer one closes the connection, so that memory is bounded."""
    pending_requests_max: int = 64
    """Unanswered requests of one connection; further requests wait."""
    kafka_security: SecurityConfig | None = None
    """With ``transport="grpc"``: TLS and login at Kafka's listeners, to which clients turn for
    groups, administration and the records of transactions. None: the settings above, which are
    then for both.
    """

    def __post_init__(self) -> None:
        SecurityConfig.__post_init__(self)
        if self.kafka_security is not None and self.transport == "kafka":
            raise _problem("kafka_security needs transport='grpc': set security_protocol instead")
        _one_of("transport", self.transport, ("kafka", "grpc"))
        if self.transport == "grpc":
            self._check_grpc()
        _positive(
            self,
            "request_timeout_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "metadata_max_age_ms",
            "connections_setup_timeout_ms",
            "response_bytes_max",
            "pending_requests_max",
        )
        for name in _INT32:
            _at_most(name, getattr(self, name, None), INT32_MAX)

    def _check_grpc(self) -> None:
        if self.uses_sasl and not self.uses_tls:
            raise _problem(
                f"security_protocol {self.security_protocol} needs transport='kafka': over gRPC a"
                " client sends its password or token with each call, so it has to be SASL_SSL"
            )
        if self.uses_sasl and self.sasl_mechanism in MECHANISM_NAMES:
            raise _problem(
                f"sasl_mechanism {self.sasl_mechanism} needs transport='kafka': over gRPC it is"
                " PLAIN or OAUTHBEARER; kafka_security may have another one"
            )
        if self.uses_tls and self.ssl_endpoint_identification_algorithm != "https":
            raise _problem(
                "ssl_endpoint_identification_algorithm='none' needs transport='kafka': gRPC always"
                " checks the host name"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer.

    A batch is sent when it is full (``batch_size``) or after ``linger_ms``.
    """

    acks: Acks = "all"
    enable_idempotence: bool | None = None
    """None: enabled unless ``acks`` or ``max_in_flight_requests_per_connection`` rules it out."""
    batch_size: int = 16 * KIB
    linger_ms: int = 5
    buffer_memory: int = 32 * MIB
    """Bytes of unacknowledged records.

    When it is full, ``send`` waits for at most ``max_block_ms``.
    """
    max_block_ms: int = 60_000
    max_request_size: int = MIB
    max_in_flight_requests_per_connection: int = 5
    delivery_timeout_ms: int = 120_000
    """Time from ``send`` to acknowledgement, including retries."""
    compression_type: CompressionType = "none"
    compression_level: int | None = None
    allow_auto_create_topics: bool = True
    transactional_id: str | None = None
    """Required by TransactionalProducer: the same after a restart, used by one producer at a time.
    """
    transaction_timeout_ms: int = 60_000
    """Time after which the coordinator aborts an open transaction."""
    tracing_enable: bool = False
    """Make an OpenTelemetry span of each record, and add its context as header ``traceparent``."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _one_of("acks", self.acks, ("all", -1, 0, 1))
        _one_of("compression_type", self.compression_type, tuple(COMPRESSION_CODES))
        _positive(
            self,
            "batch_size",
            "buffer_memory",
            "max_request_size",
            "max_in_flight_requests_per_connection",
            "delivery_timeout_ms",
            "transaction_timeout_ms",
        )
        _not_negative(self, "linger_ms", "max_block_ms")
        least, most = _LEVELS.get(self.compression_type, (INT32_MIN, INT32_MAX))
        _at_most("compression_level", self.compression_level, most)
        if self.compression_level is not None and self.compression_level < least:
            raise _problem(f"compression_level must be at least {least}")
        if self.transactional_id is not None and not self.idempotent:
            raise _problem(
                "transactional_id needs acks='all', idempotence, and at most"
                f" {IDEMPOTENT_IN_FLIGHT_MAX} requests in flight"
            )
        if self.enable_idempotence:
            self._check_idempotence()
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise _problem(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least linger_ms"
                f" + request_timeout_ms ({self.linger_ms + self.request_timeout_ms})"
            )

    def _check_idempotence(self) -> None:
        if self.required_acks != -1:
            raise _problem(
                f"enable_idempotence needs acks='all', not {self.acks!r};"
                " set enable_idempotence=False to send with fewer acknowledgements"
            )
        if self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT_MAX:
            raise _problem(
                f"enable_idempotence allows at most {IDEMPOTENT_IN_FLIGHT_MAX} requests in flight"
                f" (max_in_flight_requests_per_connection is"
                f" {self.max_in_flight_requests_per_connection}): brokers remember five batches"
            )

    @property
    def idempotent(self) -> bool:
        """True if batches carry a producer id and sequence numbers (KIP-98)."""
        if self.enable_idempotence is not None:
            return self.enable_idempotence
        in_flight = self.max_in_flight_requests_per_connection
        return self.required_acks == -1 and in_flight <= IDEMPOTENT_IN_FLIGHT_MAX

    @property
    def required_acks(self) -> int:
        """Wire value of ``acks``: -1, 0 or 1."""
        return -1 if self.acks == "all" else self.acks

    @property
    def compression_code(self) -> int:
        """Code of ``compression_type`` in a batch's attributes."""
        return COMPRESSION_CODES[self.compression_type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of a consumer."""

    auto_offset_reset: OffsetReset = "latest"
    """Start of reading without a position, or with a position outside the log."""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * MIB
    max_partition_fetch_bytes: int = MIB
    max_poll_records: int = 500
    buffered_bytes_max: int = 64 * MIB
    """Fetched bytes that ``poll`` has not returned; when full, no further fetch is sent."""
    check_crcs: bool = True
    isolation_level: IsolationLevel = "read_uncommitted"
    prefetch_beyond_lso: bool = False
    """Under read_committed, prefetch records of open transactions and hold them back until the
    transaction's marker is read. Commits are visible a round trip earlier; fetched records of
    aborted transactions are wasted.
    """
    prefetch_beyond_lso_bytes_max: int = 16 * MIB
    """Bytes held back for one partition; beyond it, fetches stop at the last stable offset."""
    group_id: str | None = None
    """The consumer group; required by ``subscribe`` and ``commit``."""
    group_instance_id: str | None = None
    """Static membership: the member keeps its partitions over restarts shorter than its session."""
    tracing_enable: bool = False
    """Make an OpenTelemetry span of each poll, with links to the ``traceparent`` of its records."""
    client_rack: str | None = None
    """Rack of this consumer: with replica.selector.class on the brokers, it reads from followers in
    this rack over transport='kafka' (KIP-392).
    """
    group_remote_assignor: str | None = None
    """``uniform`` or ``range``; None leaves the choice to the coordinator (KIP-848)."""
    enable_auto_commit: bool | None = None
    """None: enabled after ``subscribe``, disabled after ``assign``."""
    auto_commit_interval_ms: int = 5_000
    max_poll_interval_ms: int = 300_000
    """Time without ``poll`` after which a subscribed consumer leaves; the next ``poll`` rejoins."""
    default_api_timeout_ms: int = 60_000
    """Time for ``commit`` and ``committed``, including retries."""
    offsets_storage: OffsetsStorage = "tidemark"
    dual_commit_enabled: bool = False
    """Commit to both storages; a commit succeeds when both have stored it."""
    zookeeper_connect: str | None = None
    """``host:port,host:port/chroot`` of the offsets in ZooKeeper; the chroot may be left out."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _one_of("auto_offset_reset", self.auto_offset_reset, ("earliest", "latest", "none"))
        _one_of("isolation_level", self.isolation_level, ("read_uncommitted", "read_committed"))
        _one_of("offsets_storage", self.offsets_storage, ("tidemark", "kafka", "ads", "zookeeper"))
        _positive(
            self,
            "fetch_max_bytes",
            "max_partition_fetch_bytes",
            "max_poll_records",
            "buffered_bytes_max",
            "prefetch_beyond_lso_bytes_max",
            "auto_commit_interval_ms",
            "max_poll_interval_ms",
            "default_api_timeout_ms",
        )
        self._check_group()
        _not_negative(self, "fetch_min_bytes", "fetch_max_wait_ms")
        _check_wait(self.fetch_max_wait_ms, self.request_timeout_ms)

    def _check_group(self) -> None:
        if self.prefetch_beyond_lso and self.isolation_level != "read_committed":
            raise _problem("prefetch_beyond_lso needs isolation_level='read_committed'")
        if self.group_id is None:
            for name in ("group_instance_id", "enable_auto_commit"):
                if getattr(self, name):
                    raise _problem(f"{name} needs a group_id")
        elif not self.group_id:
            raise _problem("group_id must not be empty")
        if self.uses_zookeeper and not self.zookeeper_connect:
            raise _problem(
                "offsets in ZooKeeper (offsets_storage='zookeeper' or dual_commit_enabled) need"
                " zookeeper_connect"
            )
        if self.uses_zookeeper and self.group_id is not None and "/" in self.group_id:
            raise _problem(f"group_id {self.group_id!r}: a '/' cannot be part of a znode's name")

    @property
    def uses_zookeeper(self) -> bool:
        """True if offsets are stored in ZooKeeper, alone or in addition."""
        return self.offsets_storage == "zookeeper" or self.dual_commit_enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """Settings of a consumer in a share group. Settings of the whole group, such as where it starts
    and how long a lock lasts, are configuration of the group (``tidemark share config``).
    """

    group_id: str = ""
    """The share group; required."""
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    """``implicit``: the next ``poll``, or a commit, accepts all records of the last one.
    ``explicit``: every record is acknowledged by name before the next ``poll``.
    """
    share_acquire_mode: AcquireMode = "batch_optimized"
    """``batch_optimized``: whole batches are acquired, perhaps more than a poll returns, and the
    next poll returns the rest. ``record_limit``: never more than one poll returns (KIP-1206).
    """
    represent_unacknowledged: bool = False
    """In explicit mode, return records that were not acknowledged again, instead of an error."""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * MIB
    max_poll_records: int = 500
    check_crcs: bool = True
    client_rack: str | None = None
    max_poll_interval_ms: int = 300_000
    """Time without ``poll`` after which the consumer leaves its group; the next poll rejoins."""
    default_api_timeout_ms: int = 60_000
    """Time for a commit, and for acknowledgements at ``close``, including retries."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _one_of("share_acknowledgement_mode", self.share_acknowledgement_mode, _ACKNOWLEDGEMENT)
        _one_of("share_acquire_mode", self.share_acquire_mode, tuple(ACQUIRE_MODES))
        _positive(
            self,
            "fetch_max_bytes",
            "max_poll_records",
            "max_poll_interval_ms",
            "default_api_timeout_ms",
        )
        _not_negative(self, "fetch_min_bytes", "fetch_max_wait_ms")
        if not self.group_id:
            raise _problem("a share consumer needs a group_id")
        if self.transport != "kafka":
            raise _problem("share groups need transport='kafka'")
        if self.represent_unacknowledged and self.share_acknowledgement_mode != "explicit":
            raise _problem("represent_unacknowledged needs share_acknowledgement_mode='explicit'")
        _check_wait(self.fetch_max_wait_ms, self.request_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Settings of an admin client."""

    default_api_timeout_ms: int = 60_000
    """Time for a whole call, including retries."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _positive(self, "default_api_timeout_ms")


Config = TypeVar("Config", bound=ClientConfig)


def over_kafka(config: Config) -> Config:
    """Return the configuration for the Kafka listeners of a cluster that is known over gRPC."""
    login = kafka_login(config)
    changed = {each.name: getattr(login, each.name) for each in fields(SecurityConfig)}
    return replace(config, transport="kafka", kafka_security=None, **changed)


def kafka_login(config: ClientConfig) -> SecurityConfig:
    """Return TLS and login at Kafka's listeners."""
    return config if config.kafka_security is None else config.kafka_security


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return ``config`` with settings replaced by name. Raises ClientConfigError."""
    known = [setting.name for setting in fields(config)]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name.replace(".", "_"), known, n=1)
            advice = f"; did you mean {near[0]}?" if near else ""
            raise _problem(f"{type(config).__name__} has no setting {name!r}{advice}")
    return replace(config, **settings)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``, with brackets around an IPv6 host."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Initial addresses of a client. Any of them is enough to find the leaders."""

    addresses: tuple[Address, ...] = field()

    @classmethod
    def parse(cls, servers: str | Sequence[str]) -> "Bootstrap":
        """Parse ``"a:9092,b:9092"`` or a list of addresses. Raises ClientConfigError."""
        texts = servers.split(",") if isinstance(servers, str) else list(servers)
        addresses = tuple(_address(text.strip()) for text in texts if text.strip())
        if not addresses:
            raise _problem("bootstrap_servers is empty: name at least one broker as host:port")
        return cls(addresses)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise _problem(f"bootstrap server {text!r} is not host:port")
    return Address(host.strip("[]"), int(port))


def _problem(text: str) -> ClientConfigError:
    return ClientConfigError(ErrorCode.INVALID_CONFIG, text)


def _one_of(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise _problem(f"{name} is {value!r}; it must be one of {allowed}")


def _positive(config: ClientConfig, *names: str) -> None:
    for name in names:
        if getattr(config, name) <= 0:
            raise _problem(f"{name} must be above 0, not {getattr(config, name)}")


def _at_most(name: str, value: int | None, most: int) -> None:
    if value is not None and value > most:
        raise _problem(f"{name} must be at most {most}, not {value}")


def _not_negative(config: ClientConfig, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 0:
            raise _problem(f"{name} must be at least 0, not {getattr(config, name)}")


def _check_wait(fetch_max_wait_ms: int, request_timeout_ms: int) -> None:
    if fetch_max_wait_ms >= request_timeout_ms:
        raise _problem(
            f"fetch_max_wait_ms ({fetch_max_wait_ms}) must be below"
            f" request_timeout_ms ({request_timeout_ms})"
        )
