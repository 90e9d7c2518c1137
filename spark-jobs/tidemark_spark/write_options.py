"""Options of the sink, as text from Spark to values. Pure. Names in any case of letters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from tidemark.client.config import COMPRESSION_CODES, ClientConfig, ProducerConfig
from tidemark.client.errors import ClientConfigError

from tidemark_spark.errors import OptionError
from tidemark_spark.options import (
    CLIENT_PREFIX,
    boolean,
    bootstrap_servers,
    check_names,
    positive,
)

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
"""Records of one partition that travel together; far below a topic's usual max.message.bytes."""
BUFFER_BYTES: Final = 64 * 1024 * 1024
_API_TIMEOUT: Final = "client.default_api_timeout_ms"
_OURS: Final = {
    "transport": "Kafka's protocol carries the records",
    "compression_type": "the option is compression.type",
    "transactional_id": "the option is sink.id",
    "transaction_timeout_ms": "the option is transaction.timeout.ms",
    "acks": "the sink waits for all in-sync replicas",
    "enable_idempotence": "the sink is always idempotent",
}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "client_id": "tidemark-spark",
    "batch_size": BATCH_BYTES,
    "buffer_memory": BUFFER_BYTES,
    "allow_auto_create_topics": False,
}


class Delivery(StrEnum):
    """What a repeated task or batch may do."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class ReplayMismatch(StrEnum):
    """What to do when a committed batch comes again with other rows."""

    FAIL = "fail"
    SKIP = "skip"


class BatchName(NamedTuple):
    """Of a batch write that may be repeated, and is written once: by ``query.id``, ``batch.id``."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where a query writes, and how."""

    bootstrap_servers: str
    topic: str | None = None
    """None: each row says, in a column."""
    sink_id: str | None = None
    """None: the query's id."""
    batch: BatchName | None = None
    """Of a batch write; None: every write is one of its own."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    group_id: str | None = None
    source_offsets: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    replay_mismatch: ReplayMismatch = ReplayMismatch.FAIL
    api_timeout_ms: int = API_TIMEOUT_MS
    """For one call to the coordinator, tries and waits included."""
    producer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ProducerConfig that differ from its defaults."""

    @property
    def client(self) -> dict[str, Any]:
        """Those of ``producer`` that every client has."""
        shared = {each.name for each in fields(ClientConfig)}
        return {name: value for name, value in self.producer.items() if name in shared}

    @property
    def config(self) -> ProducerConfig:
        """Of the producers, without what a transaction adds."""
        return ProducerConfig(**self.producer)


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Raises OptionError with what is wrong and what to try."""
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
        transaction_timeout_ms=positive(options, "transaction.timeout.ms")
        or TRANSACTION_TIMEOUT_MS,
        group_id=group_id,
        source_offsets=source_offsets,
        delivery=delivery,
        replay_mismatch=_choice(options, "replay.mismatch", ReplayMismatch, ReplayMismatch.FAIL),
        api_timeout_ms=positive(options, _API_TIMEOUT) or API_TIMEOUT_MS,
        producer=_producer_settings(given, options),
    )
    _check_delivery(read)
    return read


def _group(options: Mapping[str, str]) -> tuple[str | None, bool]:
    group_id = _text(options, "group.id")
    wanted = boolean(options, "source.offsets", otherwise=False)
    if wanted and group_id is None:
        raise OptionError(
            "source.offsets=true needs a group whose offsets are committed",
            "name it in the option group.id",
        )
    if group_id is not None and not wanted:
        raise OptionError(
            f"group.id is {group_id!r}, but the rows carry no offsets to commit",
            "source.offsets=true, with columns source_topic, source_partition and source_offset",
        )
    return group_id, wanted


def _batch(options: Mapping[str, str], sink_id: str | None, *, streaming: bool) -> BatchName | None:
    query_id, number = _text(options, "query.id"), options.get("batch.id")
    if query_id is None and number is None:
        return None
    if streaming:
        raise OptionError(
            "query.id and batch.id are for batch writes; a stream has its own",
            "leave them out, or write in foreachBatch",
        )
    if query_id is None or number is None or sink_id is None:
        raise OptionError(
            "a batch write that may be repeated needs sink.id, query.id and batch.id",
            "set all three, or none of query.id and batch.id",
        )
    if not number.isdigit():
        raise OptionError(f"batch.id is {number!r}", "a number from 0 on")
    return BatchName(query_id, int(number))


def _check_delivery(options: WriteOptions) -> None:
    if options.delivery is Delivery.EXACTLY_ONCE:
        return
    if options.source_offsets:
        raise OptionError(
            "source.offsets=true needs delivery=exactly-once: offsets are part of a transaction",
            "leave delivery out, or source.offsets and group.id",
        )
    if options.batch is not None or options.sink_id is not None:
        raise OptionError(
            "sink.id, query.id and batch.id mean nothing with delivery=at-least-once",
            "leave them out, or delivery",
        )


def _producer_settings(given: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """`client.request.timeout.ms=500` as request_timeout_ms, converted and checked."""
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
                f"{name}: a producer has no setting {setting}", ", ".join(sorted(kinds))
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
        raise OptionError(f"{name} is {text!r}", "a whole number") from None


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
