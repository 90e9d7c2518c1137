"""Columns that the sink accepts, and their types. Pure.

All columns except ``value`` are optional. Without ``topic``, the option ``topic`` applies to all
rows. Without ``key``, records have no key. Where ``partition`` is missing or null, the key
determines it. Without ``timestamp``, records get the current time.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tidemark.model.topics import TopicPartition

from tidemark_spark.errors import SchemaError
from tidemark_spark.sink.encode import Columns, as_binary
from tidemark_spark.sink.errors import RowError
from tidemark_spark.sink.write_options import WriteOptions

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
"""Columns of the source that are not written."""

Offsets = dict[TopicPartition, int]
"""Next offset of a consumer group for each partition."""


class SinkSchema(NamedTuple):
    """Positions of the columns; checked on the driver, used in tasks."""

    places: Mapping[str, int]
    topic: str | None
    source_offsets: bool

    @classmethod
    def of(cls, given: Iterable[tuple[str, str]], options: WriteOptions) -> "SinkSchema":
        """Check columns given by name and Spark's simple type string. Raises SchemaError."""
        columns = list(given)
        known = {**TYPES, **(SOURCE_TYPES if options.source_offsets else {})}
        places: dict[str, int] = {}
        for place, (name, kind) in enumerate(columns):
            if name in known:
                _check_type(name, kind, known[name])
                places[name] = place
            elif name not in IGNORED:
                raise SchemaError(f"the sink does not write a column {name}", _advice(name, known))
        _check_complete(places, options)
        return cls(places, options.topic, options.source_offsets)

    def columns(self, rows: pa.RecordBatch) -> Columns:
        """Extract the columns of some rows. Raises RowError for what Arrow cannot convert."""
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
        """Return the offsets after these rows' source offsets; {} without source.offsets."""
        if not self.source_offsets or not rows.num_rows:
            return {}
        names = list(SOURCE_TYPES)
        columns = [rows.column(self.places[name]) for name in names]
        if any(column.null_count for column in columns):
            raise RowError(
                "source_topic, source_partition or source_offset is null in a row",
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
    """Return the size of all keys and values, which does not depend on how rows are batched."""
    parts = [columns.value] if columns.key is None else [columns.key, columns.value]
    sums = [pc.sum(pc.binary_length(part)).as_py() or 0 for part in parts]
    return int(np.sum(sums))


def _check_type(name: str, kind: str, allowed: tuple[str, ...]) -> None:
    if kind not in allowed:
        raise SchemaError(
            f"the column {name} has type {kind}; the sink accepts {' or '.join(allowed)}",
            f'withColumn("{name}", col("{name}").cast("{allowed[0]}"))'
            if not allowed[0].startswith("array")
            else "array(struct(lit('name').alias('key'), col('content').alias('value')))",
        )


def _advice(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    if near:
        return f'rename it: withColumnRenamed("{name}", "{near[0]}")'
    return (
        f"select {', '.join(known)}; to write other columns, put them into value:"
        " to_json(struct(...))"
    )


def _check_complete(places: Mapping[str, int], options: WriteOptions) -> None:
    if "value" not in places:
        raise SchemaError(
            "there is no column value", 'for example selectExpr("to_json(struct(*)) AS value")'
        )
    if options.topic is None and "topic" not in places:
        raise SchemaError(
            "neither the option topic nor a column topic is given",
            'option("topic", "..."), or a string column topic',
        )
    missing = [name for name in SOURCE_TYPES if name not in places]
    if options.source_offsets and missing:
        raise SchemaError(
            f"source.offsets=true needs the columns {', '.join(missing)}",
            "keep the source's topic, partition and offset under these names",
        )
