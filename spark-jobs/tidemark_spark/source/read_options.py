"""Options of the source, parsed from Spark's strings. Pure.

An option that Spark's Kafka source has too has the same name here. Names are case-insensitive.
`client.*` are settings of Tidemark's client, written with dots or underscores.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tidemark.client.consumer.range_reader import RangeReaderConfig
from tidemark.codec.varint import INT64_MAX
from tidemark.model.topics import TopicPartition

from tidemark_spark.errors import OptionError
from tidemark_spark.options import (
    CLIENT_PREFIX,
    boolean,
    bootstrap_servers,
    check_names,
    choice,
    integer,
    nearest,
    positive,
)
from tidemark_spark.security import client_security

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
RECORDS_PER_BATCH: Final = 16_384
MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1_000

READ_OPTIONS: Final = (
    "bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsets.default",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "topicIds",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "isolation.level",
    "includeHeaders",
    "maxRecordsPerBatch",
    "minPartitions",
    "maxRecordsPerPartition",
    "group.id",
)
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|min|m|h)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class Edge(StrEnum):
    """A symbolic offset for all partitions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


class AtTimestamp(NamedTuple):
    """The first record of each partition with at least this timestamp, in ms since 1970."""

    timestamp_ms: int


class PerPartition(NamedTuple):
    """An offset for each partition; it may be LATEST_OFFSET or EARLIEST_OFFSET."""

    offsets: Mapping[TopicPartition, int]


class PerPartitionTimestamp(NamedTuple):
    """A timestamp for each partition, in ms since 1970."""

    timestamps_ms: Mapping[TopicPartition, int]


Bound = Edge | AtTimestamp | PerPartition | PerPartitionTimestamp


class Subscribe(NamedTuple):
    """Selection of topics by name, with all partitions."""

    topics: tuple[str, ...]


class SubscribePattern(NamedTuple):
    """Selection of topics whose whole name matches, except internal topics."""

    pattern: str


class Assign(NamedTuple):
    """Selection of partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Parsed options of a query."""

    bootstrap_servers: str
    selection: Selection
    starting: Bound
    ending: Bound = Edge.LATEST
    default_edge: Edge = Edge.EARLIEST
    """Start of a partition for which the group has committed no offset."""
    young_start_is_latest: bool = False
    """Start at the end of a partition without a record as new as the starting timestamp.

    Otherwise such a partition is an error.
    """
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids, in hexadecimal, that topics must have: offsets belong to an id and not to a name."""
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = MAX_TRIGGER_DELAY_MS
    fail_on_data_loss: bool = True
    read_committed: bool = True
    include_headers: bool = False
    records_per_batch: int = RECORDS_PER_BATCH
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    group_id: str | None = None
    client: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the client by name, as typed values."""


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a query. Raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(given, READ_OPTIONS)
    fits = _for_streams if streaming else _for_batches
    fits(options)
    starting = _starting(options, Edge.LATEST if streaming else Edge.EARLIEST)
    group_id = options.get("group.id")
    if starting is Edge.COMMITTED and not group_id:
        raise OptionError(
            "startingOffsets=committed needs a consumer group", "set the option group.id"
        )
    return ReadOptions(
        bootstrap_servers=bootstrap_servers(options),
        selection=_selection(options),
        starting=starting,
        ending=_ending(options),
        default_edge=_edge(options, "startingOffsets.default", Edge.EARLIEST),
        young_start_is_latest=choice(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        )
        == "latest",
        topic_ids=_topic_ids(options),
        offsets_per_trigger_max=positive(options, "maxOffsetsPerTrigger"),
        offsets_per_trigger_min=positive(options, "minOffsetsPerTrigger"),
        trigger_delay_ms_max=_duration_ms(options, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        fail_on_data_loss=boolean(options, "failOnDataLoss", otherwise=True),
        read_committed=choice(
            options, "isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
        )
        == "read_committed",
        include_headers=boolean(options, "includeHeaders", otherwise=False),
        records_per_batch=positive(options, "maxRecordsPerBatch") or RECORDS_PER_BATCH,
        partitions_min=positive(options, "minPartitions"),
        records_per_partition_max=positive(options, "maxRecordsPerPartition"),
        group_id=group_id,
        client=client_settings(given) | client_security(options),
    )


def client_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Parse `client.*`: `client.request.timeout.ms=500` is `{"request_timeout_ms": 500}`."""
    kinds = {each.name: each.type for each in fields(RangeReaderConfig)}
    kinds.pop("transport")
    kinds.pop("kafka_security")
    settings: dict[str, Any] = {}
    for name, text in given.items():
        if not name.lower().startswith(CLIENT_PREFIX):
            continue
        setting = name[len(CLIENT_PREFIX) :].lower().replace(".", "_")
        if setting not in kinds:
            raise OptionError(
                f"{name}: the client has no setting {setting}", nearest(setting, kinds)
            )
        options = {setting: text}
        if kinds[setting] is bool:
            settings[setting] = boolean(options, setting, otherwise=False)
        elif kinds[setting] is int:
            settings[setting] = integer(name, text, 0)
        else:
            settings[setting] = text
    return settings


def _edge(options: Mapping[str, str], name: str, otherwise: Edge) -> Edge:
    return Edge(choice(options, name, (Edge.EARLIEST, Edge.LATEST), otherwise))


def _duration_ms(options: Mapping[str, str], name: str, otherwise: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return otherwise
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(f"{name} is {text!r}", "a number with ms, s, m or h, such as 15m")
    return int(found[1]) * _DURATION_MS[found[2]]


def _for_streams(options: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name.lower() in options:
            raise OptionError(
                f"{name} is an option of batch queries",
                "leave it out; with trigger(availableNow=True) a streaming query stops after the"
                " records present at its start",
            )
    if "topicids" in options:
        raise OptionError(
            "topicIds is an option of batch queries",
            "leave it out; the checkpoint of a streaming query has the ids of its topics",
        )


def _for_batches(options: Mapping[str, str]) -> None:
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in options:
            raise OptionError(f"{name} is an option of streaming queries", "leave it out")
    if options.get("startingoffsets", "").lower() == Edge.LATEST:
        raise OptionError(
            "with startingOffsets=latest a batch query would read nothing",
            "earliest, or offsets",
        )


def _selection(options: Mapping[str, str]) -> Selection:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if name.lower() in options]
    if len(given) != 1:
        raise OptionError(
            f"exactly one of {', '.join(names)} is required; given: {', '.join(given) or 'none'}",
            'option("subscribe", "topic,...")',
        )
    text = options[given[0].lower()]
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError("subscribe contains no topic", 'option("subscribe", "topic,...")')
        return Subscribe(topics)
    if given[0] == "subscribePattern":
        return _pattern(text)
    return _assigned(text)


def _pattern(text: str) -> SubscribePattern:
    try:
        re.compile(text)
    except re.error as problem:
        raise OptionError(
            f"subscribePattern {text!r} is not a regular expression: {problem}",
            "for example orders-.*",
        ) from None
    return SubscribePattern(text)


def _assigned(text: str) -> Assign:
    hint = '{"topic": [0, 1]}'
    partitions: list[TopicPartition] = []
    for topic, numbers in _json_object("assign", text, hint).items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise OptionError(f"assign: the partitions of {topic!r} are {numbers!r}", hint)
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise OptionError("assign contains no partition", hint)
    return Assign(tuple(sorted(set(partitions))))


def _topic_ids(options: Mapping[str, str]) -> dict[str, str]:
    text = options.get("topicids")
    if text is None:
        return {}
    hint = '{"topic": "6f1c0d..."}, in hexadecimal'
    found = _json_object("topicIds", text, hint)
    for topic, topic_id in found.items():
        if not isinstance(topic_id, str):
            raise OptionError(f"topicIds: the id of {topic!r} is {topic_id!r}", hint)
    return {topic: topic_id.lower() for topic, topic_id in found.items()}


def _starting(options: Mapping[str, str], otherwise: Edge) -> Bound:
    """Parse the start. As in Spark's Kafka source, one timestamp for all partitions overrides
    timestamps by partition, and these override offsets.
    """
    found = _by_time(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if found is not None:
        return found
    return _bound(options, "startingOffsets", tuple(Edge), otherwise)


def _ending(options: Mapping[str, str]) -> Bound:
    found = _by_time(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if found is not None:
        return found
    bound = _bound(options, "endingOffsets", (Edge.LATEST,), Edge.LATEST)
    if isinstance(bound, PerPartition) and EARLIEST_OFFSET in bound.offsets.values():
        raise OptionError("endingOffsets contains -2 (earliest)", "-1 (latest), or offsets")
    return bound


def _by_time(options: Mapping[str, str], one: str, each: str) -> Bound | None:
    if (text := options.get(one.lower())) is not None:
        return AtTimestamp(integer(one, text, 0))
    if (text := options.get(each.lower())) is not None:
        return PerPartitionTimestamp(_per_partition(each, text, 0))
    return None


def _bound(
    options: Mapping[str, str], name: str, edges: tuple[Edge, ...], otherwise: Edge
) -> Bound:
    text = options.get(name.lower())
    if text is None:
        return otherwise
    if text.strip().lower() in edges:
        return Edge(text.strip().lower())
    if not text.strip().startswith("{"):
        words = ", ".join(edges)
        raise OptionError(f"{name} is {text!r}", f'{words}, or {{"topic": {{"0": 23}}}}')
    return PerPartition(_per_partition(name, text, EARLIEST_OFFSET))


def _per_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    hint = '{"topic": {"0": 23, "1": 42}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(name, text, hint).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{name}: the value for {topic!r} is {numbers!r}", hint)
        for partition, number in numbers.items():
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not partition.isdecimal() or not whole or not least <= number <= INT64_MAX:
                raise OptionError(
                    f"{name}: the value for {topic!r} contains {partition!r}: {number!r}", hint
                )
            found[TopicPartition(topic, int(partition))] = number
    return found


def _json_object(name: str, text: str, hint: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise OptionError(f"{name} is not JSON: {problem}", hint) from None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name} is {text!r}", hint)
    return parsed


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
