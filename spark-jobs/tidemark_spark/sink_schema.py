"""Which columns the sink takes, and of what types. Pure.

Beside ``value`` all are optional: without ``topic`` the option names one for all rows, without
``key`` records have none, without ``partition`` (or where it is null) the key decides, without
``timestamp`` a record gets the present.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tidemark.model.topics import TopicPartition

from tidemark_spark.encode import Columns, as_binary
from tidemark_spark.errors import SchemaError
from tidemark_spark.sink_errors import RowError
from tidemark_spark.write_options import WriteOptions

_BYTES: Final = ("binary", "string")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TIMES: Final = ("timestamp", "timestamp_ntz")
_HEADERS: Final = (
    "array<struct<key:string,value:binary>>",
    "array<struct<key:string,value:string>>",
)
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": ("string",),
    "partition": _WHOLE,
    "timestamp": _TIMES,
    "headers": _HEADERS,
}
SOURCE_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "source_topic": ("string",),
    "source_partition": _WHOLE,
    "source_offset": _WHOLE,
}
IGNORED: Final = frozenset({"offset", "timestampType", *SOURCE_TYPES})
"""What the source gives and a record does not carry."""

Offsets = dict[TopicPartition, int]
"""The offsets that a group reads next."""


class SinkSchema(NamedTuple):
    """Where each column is; checked on the driver, used in tasks."""

    places: Mapping[str, int]
    topic: str | None
    source_offsets: bool

    @classmethod
    def of(cls, given: Iterable[tuple[str, str]], options: WriteOptions) -> "SinkSchema":
        """From names and Spark's simple type strings. Raises SchemaError."""
        columns = list(given)
        known = {**TYPES, **(SOURCE_TYPES if options.source_offsets else {})}
        places: dict[str, int] = {}
        for place, (name, kind) in enumerate(columns):
            if name in known:
                _check_type(name, kind, known[name])
                places[name] = place
            elif name not in IGNORED:
                raise SchemaError(
                    f"the sink has no place for the column {name}", _advice(name, known)
                )
        _check_complete(places, options)
        return cls(places, options.topic, options.source_offsets)

    def columns(self, rows: pa.RecordBatch) -> Columns:
        """The columns of some rows. Raises RowError for what Arrow cannot convert."""
        key, headers = self._column(rows, "key"), self._column(rows, "headers")
        topic = self._column(rows, "topic")
        return Columns(
            topic=self.topic if self.topic is not None else topic,
            partition=self._column(rows, "partition"),
            key=None if key is None else as_binary(key),
            value=as_binary(rows.column(self.places["value"])),
            timestamp=self._column(rows, "timestamp"),
            headers=headers,
        )

    def next_offsets(self, rows: pa.RecordBatch) -> Offsets:
        """What a group that has processed these rows reads next; {} without source offsets."""
        if not self.source_offsets or not rows.num_rows:
            return {}
        names = list(SOURCE_TYPES)
        columns = [rows.column(self.places[name]) for name in names]
        if any(column.null_count for column in columns):
            raise RowError(
                "a row has no source_topic, source_partition or source_offset",
                "fill all three columns, or set source.offsets=false",
            )
        highest = (
            pa.table(dict(zip(names, columns, strict=True)))
            .group_by(names[:2])
            .aggregate([(names[2], "max")])
        )
        return {
            TopicPartition(row[names[0]], row[names[1]]): row[f"{names[2]}_max"] + 1
            for row in highest.to_pylist()
        }

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array | None:
        place = self.places.get(name)
        return None if place is None else rows.column(place)


def payload_bytes(columns: Columns) -> int:
    """Of keys and values: the same however the rows are cut into batches."""
    parts = [columns.value] if columns.key is None else [columns.key, columns.value]
    sums = [pc.sum(pc.binary_length(part)).as_py() or 0 for part in parts]
    return int(np.sum(sums))


def _check_type(name: str, kind: str, allowed: tuple[str, ...]) -> None:
    if kind not in allowed:
        raise SchemaError(
            f"the column {name} is {kind}; the sink takes {' or '.join(allowed)}",
            f'withColumn("{name}", col("{name}").cast("{allowed[0]}"))'
            if not allowed[0].startswith("array")
            else "array(struct(lit('name').alias('key'), col('content').alias('value')))",
        )


def _advice(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    if near:
        return f'rename it: withColumnRenamed("{name}", "{near[0]}")'
    return f"select {', '.join(known)}; to keep others pack them: to_json(struct(...)) as value"


def _check_complete(places: Mapping[str, int], options: WriteOptions) -> None:
    if "value" not in places:
        raise SchemaError(
            "there is no column value", 'selectExpr("to_json(struct(*)) AS value"), for instance'
        )
    if options.topic is None and "topic" not in places:
        raise SchemaError(
            "neither an option nor a column says which topic to write to",
            'option("topic", "..."), or a string column topic',
        )
    missing = [name for name in SOURCE_TYPES if name not in places]
    if options.source_offsets and missing:
        raise SchemaError(
            f"source.offsets=true, but there is no column {', '.join(missing)}",
            "carry the source's topic, partition and offset along under these names",
        )
