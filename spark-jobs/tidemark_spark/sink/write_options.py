"""Options of the sink, parsed from Spark's strings. Pure. Names are case-insensitive."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from tidemark.client.config import COMPRESSION_CODES, ClientConfig, ProducerConfig
from tidemark.client.errors import ClientConfigError
from tidemark.client.security_config import SecurityConfig
from tidemark.codec.varint import INT32_MAX

from tidemark_spark.errors import OptionError
from tidemark_spark.options import (
    CLIENT_PREFIX,
    boolean,
    bootstrap_servers,
    check_names,
    integer,
    positive,
)
from tidemark_spark.security import client_security

WRITE_OPTIONS: Final = (
    "bootstrap.servers",
    "topic",
    "sink.id",
    "query.id",
    "batch.id",
    "compression.type",
    "transaction.timeout.ms",
    "group.id",
    "source.offsets",
    "delivery",
    "replay.mismatch",
)
TRANSACTION_TIMEOUT_MS: Final = 60_000
API_TIMEOUT_MS: Final = 60_000
BATCH_BYTES: Final = 512 * 1024
"""Size of a batch of records; far below the default of a topic's max.message.bytes."""
BUFFER_BYTES: Final = 64 * 1024 * 1024
_API_TIMEOUT: Final = "client.default_api_timeout_ms"
_OURS: Final = {
    "transport": "leave it out: records are sent in Kafka's protocol",
    "compression_type": "use the option compression.type",
    "transactional_id": "use the option sink.id",
    "transaction_timeout_ms": "use the option transaction.timeout.ms",
    "acks": "leave it out: the sink always waits for all in-sync replicas",
    "enable_idempotence": "leave it out: the sink is always idempotent",
    "kafka_security": "use kafka.security.protocol, kafka.sasl.* and kafka.ssl.*",
}
_LOGIN: Final = {each.name for each in fields(SecurityConfig)}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "client_id": "tidemark-spark",
    "batch_size": BATCH_BYTES,
    "buffer_memory": BUFFER_BYTES,
    "allow_auto_create_topics": False,
}


class Delivery(StrEnum):
    """Delivery guarantee when a task or a batch is repeated."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class ReplayMismatch(StrEnum):
    """Reaction to a committed batch that is replayed with other rows."""

    FAIL = "fail"
    SKIP = "skip"


class BatchName(NamedTuple):
    """Name of a batch write that can be repeated: ``query.id`` and ``batch.id``."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Parsed options of a write."""

    bootstrap_servers: str
    topic: str | None = None
    """None: each row has its topic in a column."""
    sink_id: str | None = None
    """None: the id of the query."""
    batch: BatchName | None = None
    """Name of a batch write that can be repeated; None: it cannot."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    group_id: str | None = None
    source_offsets: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    replay_mismatch: ReplayMismatch = ReplayMismatch.FAIL
    api_timeout_ms: int = API_TIMEOUT_MS
    """Timeout of a call to the coordinator, including retries."""
    producer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ProducerConfig that differ from its defaults, without TLS and login."""
    security: Mapping[str, Any] = field(default_factory=dict)
    """TLS and login, as ``client_security`` returns them."""

    @property
    def client(self) -> dict[str, Any]:
        """Settings in ``producer`` that every client has."""
        shared = {each.name for each in fields(ClientConfig)} - _LOGIN
        own = {name: value for name, value in self.producer.items() if name in shared}
        return {**own, **self.security}

    @property
    def config(self) -> ProducerConfig:
        """Configuration of the producers, without settings of the transaction."""
        at_kafka = self.security.get("kafka_security")
        login = {} if at_kafka is None else asdict(at_kafka)
        return ProducerConfig(**self.producer, **login)


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse the options of a write. Raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(given, WRITE_OPTIONS)
    group_id, source_offsets = _group(options)
    delivery = _choice(options, "delivery", Delivery, Delivery.EXACTLY_ONCE)
    sink_id = _text(options, "sink.id")
    read = WriteOptions(
        bootstrap_servers=bootstrap_servers(options),
        topic=_text(options, "topic"),
        sink_id=sink_id,
        batch=_batch(options, sink_id, streaming=streaming),
        transaction_timeout_ms=positive(options, "transaction.timeout.ms", INT32_MAX)
        or TRANSACTION_TIMEOUT_MS,
        group_id=group_id,
        source_offsets=source_offsets,
        delivery=delivery,
        replay_mismatch=_choice(options, "replay.mismatch", ReplayMismatch, ReplayMismatch.FAIL),
        api_timeout_ms=positive(options, _API_TIMEOUT) or API_TIMEOUT_MS,
        producer=_producer_settings(given, options),
        security=client_security(options),
    )
    _check_delivery(read)
    return read


def _group(options: Mapping[str, str]) -> tuple[str | None, bool]:
    group_id = _text(options, "group.id")
    wanted = boolean(options, "source.offsets", otherwise=False)
    if wanted and group_id is None:
        raise OptionError(
            "source.offsets=true needs a consumer group to commit the offsets for",
            "set the option group.id",
        )
    if group_id is not None and not wanted:
        raise OptionError(
            f"group.id is {group_id!r}, but source.offsets is false, so no offsets are committed",
            "set source.offsets=true, and add the columns source_topic, source_partition and"
            " source_offset",
        )
    return group_id, wanted


def _batch(options: Mapping[str, str], sink_id: str | None, *, streaming: bool) -> BatchName | None:
    query_id, number = _text(options, "query.id"), options.get("batch.id")
    if query_id is None and number is None:
        return None
    if streaming:
        raise OptionError(
            "query.id and batch.id are options of batch writes; a streaming query has its own ids",
            "leave them out, or write in foreachBatch",
        )
    if query_id is None or number is None or sink_id is None:
        raise OptionError(
            "a repeatable batch write needs all of sink.id, query.id and batch.id",
            "set all three, or none of query.id and batch.id",
        )
    return BatchName(query_id, integer("batch.id", number, 0))


def _check_delivery(options: WriteOptions) -> None:
    if options.delivery is Delivery.EXACTLY_ONCE:
        return
    if options.source_offsets:
        raise OptionError(
            "source.offsets=true needs delivery=exactly-once: offsets are committed in the"
            " transaction",
            "leave out delivery, or source.offsets and group.id",
        )
    if options.batch is not None or options.sink_id is not None:
        raise OptionError(
            "sink.id, query.id and batch.id cannot be used with delivery=at-least-once",
            "leave them out, or leave out delivery",
        )


def _producer_settings(given: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """Parse and check `client.*`: `client.request.timeout.ms` is ``request_timeout_ms``."""
    kinds = {each.name: each.type for each in fields(ProducerConfig)}
    settings = dict(_DEFAULTS)
    for name, text in given.items():
        if not name.lower().startswith(CLIENT_PREFIX) or name.lower() == _API_TIMEOUT:
            continue
        setting = name[len(CLIENT_PREFIX) :].lower().replace(".", "_")
        if setting in _OURS:
            raise OptionError(f"{name} cannot be set", _OURS[setting])
        if setting not in kinds:
            raise OptionError(
                f"{name}: the producer has no setting {setting}",
                f"one of {', '.join(sorted(kinds))}",
            )
        settings[setting] = _converted(name, text, kinds[setting])
    compression = options.get("compression.type", "none").lower()
    if compression not in COMPRESSION_CODES:
        raise OptionError(
            f"compression.type is {compression!r}", f"one of {', '.join(COMPRESSION_CODES)}"
        )
    settings["compression_type"] = compression
    try:
        ProducerConfig(**settings)
    except ClientConfigError as problem:
        raise OptionError(str(problem), "change the options that begin with client.") from None
    return settings


def _converted(name: str, text: str, kind: Any) -> Any:
    if kind is bool:
        return boolean({name.lower(): text}, name, otherwise=False)
    if kind is str:
        return text
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"{name} is {text!r}", "an integer") from None


Choice = TypeVar("Choice", bound=StrEnum)


def _choice(
    options: Mapping[str, str], name: str, choices: type[Choice], otherwise: Choice
) -> Choice:
    text = options.get(name.lower(), otherwise).lower()
    try:
        return choices(text)
    except ValueError:
        raise OptionError(f"{name} is {text!r}", " or ".join(choices)) from None


def _text(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip():
        raise OptionError(f"{name} is empty", f"leave {name} out, or give it a value")
    return text.strip()
