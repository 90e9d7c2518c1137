"""Arbitrary messages, such as their version can carry: a field that the version lacks has its
default."""

from functools import cache
from typing import Any

from hypothesis import strategies as st
from tidemark.kafka import api_versions as av
from tidemark.kafka import fetch, metadata, produce
from tidemark.kafka import list_offsets as lo
from tidemark.kafka.primitives import ZERO_UUID, NodeEndpoint
from tidemark.kafka.schemas import FieldSchema

Strategy = st.SearchStrategy[Any]

int8s = st.integers(-(1 << 7), (1 << 7) - 1)
int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
errors = st.integers(-1, 120)  # kio knows no error codes from 134 on
times = st.integers(0, 1 << 40)  # nor negative timestamps
durations = st.integers(0, (1 << 31) - 1)
names = st.text(max_size=8)
texts = st.none() | names
records: Strategy = st.none() | st.binary(max_size=20).map(lambda data: memoryview(data))
uuids = st.binary(min_size=16, max_size=16).filter(any)
brokers = st.builds(NodeEndpoint, int32s, names, int32s, texts)
pairs32 = st.tuples(int32s, int32s)


def few(element: Strategy) -> Strategy:
    """A short list."""
    return st.lists(element, max_size=3)


def from_version(first: int, version: int, strategy: Strategy, default: object) -> Strategy:
    """The strategy where the version has the field, else its default."""
    return strategy if version >= first else st.just(default)


def topic_and_id(version: int) -> tuple[Strategy, Strategy]:
    """Name before version 13, id from there."""
    return (st.just(""), uuids) if version >= 13 else (names, st.just(ZERO_UUID))


# ---------------------------------------------------------------- produce


@cache
def produce_requests(version: int) -> Strategy:
    """ProduceRequest."""
    partition = st.builds(produce.ProducePartition, int32s, records)
    topic = st.builds(produce.ProduceTopic, *topic_and_id(version), few(partition))
    return st.builds(produce.ProduceRequest, texts, int16s, durations, few(topic))


@cache
def produce_responses(version: int) -> Strategy:
    """ProduceResponse."""
    leaders = st.none() | pairs32.filter(lambda leader: leader != (-1, -1))
    result = st.builds(
        produce.ProducePartitionResult,
        int32s,
        errors,
        int64s,
        st.just(-1) | times,
        from_version(5, version, int64s, -1),
        from_version(8, version, texts, None),
        from_version(10, version, leaders, None),
        from_version(8, version, few(st.tuples(int32s, texts)).map(tuple), ()),
    )
    topic = st.tuples(*topic_and_id(version), few(result))
    endpoints = from_version(10, version, few(brokers), [])
    return st.builds(produce.ProduceResponse, few(topic), durations, endpoints)


# ---------------------------------------------------------------- fetch


@cache
def fetch_requests(version: int) -> Strategy:
    """FetchRequest."""
    unsupported = fetch.HIGH_WATERMARK_UNSUPPORTED
    partition = st.builds(
        fetch.FetchPartition,
        int32s,
        from_version(9, version, int32s, -1),
        int64s,
        from_version(12, version, int32s, -1),
        from_version(5, version, int64s, -1),
        int32s,
        from_version(17, version, st.just(ZERO_UUID) | uuids, ZERO_UUID),
        from_version(18, version, st.just(unsupported) | int64s, unsupported),
        from_version(12, version, int64s, fetch.SYNCED_END_UNKNOWN),
    )
    name, topic_id = topic_and_id(version)
    return st.builds(
        fetch.FetchRequest,
        int32s,
        from_version(15, version, int64s, -1),
        durations,
        int32s,
        int32s,
        int8s,
        from_version(7, version, int32s, 0),
        from_version(7, version, int32s, -1),
        few(st.builds(fetch.FetchTopic, name, topic_id, few(partition))),
        from_version(7, version, few(st.tuples(name, topic_id, few(int32s))), []),
        from_version(11, version, names, ""),
        from_version(12, version, texts, None),
    )


@st.composite
def fetched_partitions(draw: st.DrawFn, version: int) -> fetch.FetchedPartition:
    """One partition's answer with its records, whose size the result holds."""
    batches = draw(records)
    tagged = pairs32.filter(lambda pair: pair != (-1, -1))
    diverging = st.tuples(int32s, int64s).filter(lambda pair: pair != (-1, -1))
    result = fetch.FetchPartitionResult(
        draw(int32s),
        draw(errors),
        draw(int64s),
        draw(int64s),
        draw(from_version(5, version, int64s, -1)),
        draw(from_version(12, version, st.none() | diverging, None)),
        draw(from_version(12, version, st.none() | tagged, None)),
        draw(st.none() | few(st.tuples(int64s, int64s))),
        draw(from_version(11, version, int32s, -1)),
        -1 if batches is None else len(batches),
    )
    return fetch.FetchedPartition(result, batches)


@cache
def fetch_responses(version: int) -> Strategy:
    """FetchResponse."""
    partitions = few(fetched_partitions(version))
    return st.builds(
        fetch.FetchResponse,
        durations,
        from_version(7, version, errors, 0),
        from_version(7, version, int32s, 0),
        few(st.builds(fetch.FetchedTopic, *topic_and_id(version), partitions)),
        from_version(16, version, few(brokers), []),
    )


# ---------------------------------------------------------------- metadata, list offsets, api
# versions


@cache
def metadata_requests(version: int) -> Strategy:
    """MetadataRequest."""
    if version >= 10:
        query = st.builds(metadata.MetadataQuery, texts, st.just(ZERO_UUID) | uuids)
    else:
        query = st.builds(metadata.MetadataQuery, names, st.just(ZERO_UUID))
    some = st.lists(query, min_size=0 if version >= 1 else 1, max_size=3)
    has_cluster = st.booleans() if 8 <= version <= 10 else st.just(False)
    return st.builds(
        metadata.MetadataRequest,
        st.none() | some,
        from_version(4, version, st.booleans(), True),
        has_cluster,
        from_version(8, version, st.booleans(), False),
    )


@cache
def metadata_responses(version: int) -> Strategy:
    """MetadataResponse."""
    omitted = metadata.AUTHORIZED_OPERATIONS_OMITTED
    partition = st.builds(
        metadata.MetadataPartition,
        errors,
        int32s,
        int32s,
        from_version(7, version, int32s, -1),
        few(int32s),
        few(int32s),
        from_version(5, version, few(int32s), []),
    )
    topic = st.builds(
        metadata.MetadataTopic,
        errors,
        texts if version >= 12 else names,
        from_version(10, version, uuids, ZERO_UUID),
        from_version(1, version, st.booleans(), False),
        few(partition),
        from_version(8, version, int32s, omitted),
    )
    rack = from_version(1, version, texts, None)
    return st.builds(
        metadata.MetadataResponse,
        few(st.builds(NodeEndpoint, int32s, names, int32s, rack)),
        from_version(2, version, texts, None),
        from_version(1, version, int32s, -1),
        few(topic),
        from_version(3, version, durations, 0),
        int32s if 8 <= version <= 10 else st.just(omitted),
        from_version(13, version, errors, 0),
    )


@cache
def list_offsets_requests(version: int) -> Strategy:
    """ListOffsetsRequest."""
    epoch = from_version(4, version, int32s, -1)
    partition = st.builds(lo.ListOffsetsPartition, int32s, int64s, epoch)
    return st.builds(
        lo.ListOffsetsRequest,
        int32s,
        from_version(2, version, int8s, 0),
        few(st.builds(lo.ListOffsetsTopic, names, few(partition))),
        from_version(10, version, durations, 0),
    )


@cache
def list_offsets_responses(version: int) -> Strategy:
    """ListOffsetsResponse."""
    epoch = from_version(4, version, int32s, -1)
    result = st.builds(lo.ListOffsetsResult, int32s, errors, int64s, int64s, epoch)
    return st.builds(
        lo.ListOffsetsResponse,
        few(st.tuples(names, few(result))),
        from_version(2, version, durations, 0),
    )


@cache
def api_versions_requests(version: int) -> Strategy:
    """ApiVersionsRequest."""
    name = from_version(3, version, names, "")
    return st.builds(av.ApiVersionsRequest, name, name)


@cache
def api_versions_responses(version: int) -> Strategy:
    """ApiVersionsResponse, whose features have no zero minimum, as those are left out below version
    4."""
    levels = st.integers(1, 100)
    return st.builds(
        av.ApiVersionsResponse,
        errors,
        few(st.builds(av.ApiVersion, int16s, int16s, int16s)),
        from_version(1, version, durations, 0),
        from_version(
            3, version, few(st.builds(av.SupportedFeature, names, levels, levels)).map(tuple), ()
        ),
        from_version(3, version, int64s, -1),
        from_version(
            3, version, few(st.builds(av.FinalizedFeature, names, levels, levels)).map(tuple), ()
        ),
        from_version(3, version, st.booleans(), False),
    )


# ---------------------------------------------------------------- the long tail

# The widest of kio's ranges; "throttle_time" and the like are durations there.
_WIRE: dict[str, Strategy] = {
    "int8": int8s,
    "int16": int16s,
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": int32s,
    "int64": int64s,
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "string": names,
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=8),
    "uuid": uuids,
}


def _primitive(field: FieldSchema) -> Strategy:
    if "error_code" in field.name:
        return errors
    if field.wire_type in ("int32", "int64") and ("time" in field.name or "timeout" in field.name):
        return durations
    return _WIRE[field.wire_type]


@cache
def message_fields(fields: tuple[FieldSchema, ...], version: int) -> Strategy:
    """A mapping of every field that the version has, one or two elements an array."""
    return st.fixed_dictionaries(
        {field.name: _field(field, version) for field in fields if version in field.versions}
    )


def _field(field: FieldSchema, version: int) -> Strategy:
    nested = field.wire_type == "struct"
    value = message_fields(field.fields, version) if nested else _primitive(field)
    if field.is_array:
        value = st.lists(value, max_size=2)
    if version in field.nullable and field.wire_type != "records":  # kio refuses null records
        return st.none() | value
    return value
