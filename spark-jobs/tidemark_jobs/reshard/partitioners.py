"""Partition of a key: a function of the key and of the number of partitions, and of nothing else.

A rule is written as one word and becomes a column expression. Spark compiles all of them with the
rest of the plan except ``murmur2``, which is computed in Python over whole Arrow columns: by a
function of Spark's plan, or by the task that writes the rows (``PartitionRule.fill``).

| rule | partition |
| --- | --- |
| ``murmur2`` | Kafka's default: the same as a Java client and the native client choose |
| ``crc32`` | librdkafka's ``consistent``: CRC-32 of the key, modulo the number of partitions |
| ``hash`` | Spark's xxHash64 of the key, modulo the number of partitions |
| ``case`` | first half for keys that begin with a lower case letter, second half for upper case |
| ``ranges:a-m=0,n-z=1-3,*=4`` | by the key's first character; several partitions by CRC-32 |
| ``splits:g,n,t`` | by byte order: below g: 0, from g: 1, from n: 2, from t: 3 |
| ``sql:EXPRESSION`` | any Spark SQL expression of ``key`` (binary), with ``{partitions}`` |

The result is null for a key that the rule does not place.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from tidemark_spark.errors import OptionError
from tidemark_spark.sink.hashing import partitions_of_keys

KEY: Final = "key"
"""Name of the column with the extracted key: binary, null if there is no key."""

_PLACEHOLDER: Final = "{partitions}"
_RANGE: Final = re.compile(r"(?:(?P<low>.)-(?P<high>.)|\*)=(?P<first>\d+)(?:-(?P<last>\d+))?")


@dataclass(frozen=True, slots=True)
class CharacterRange:
    """Keys whose first character is in low..high go to the partitions first..last.

    Without ``low`` and ``high``: all keys that no other range contains.
    """

    low: str | None
    high: str | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """A rule that places keys; ``str()`` of it can be parsed by ``parse_partitioner``."""

    kind: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind

    def check(self, count: int) -> None:
        """Raise OptionError if ``count`` partitions are too few for the rule."""
        needed = self._needed()
        if count < needed:
            raise OptionError(
                f"the partitioner {self} needs {needed} partitions, and the topic has {count}",
                "use a topic with more partitions, or another partitioner",
            )

    def column(self, count: int) -> Column:
        """Return an expression for the partition (int, of ``count``) of the column ``KEY``."""
        return sf.when(sf.col(KEY).isNotNull(), _COLUMNS[self.kind](self.argument, count))

    @property
    def late(self) -> bool:
        """True if the task that writes a row can compute its partition, and Spark need not."""
        return self.kind == "murmur2"

    def fill(self, rows: pa.RecordBatch, count: int) -> pa.RecordBatch:
        """Fill the column ``partition`` where it is null, if the rule is ``late``.

        ``rows`` have the columns ``partition`` (int) and ``KEY`` (binary). Every key has a
        partition by such a rule.
        """
        place = rows.schema.get_field_index("partition")
        given = rows.column(place)
        if not self.late or not given.null_count:
            return rows
        found = pa.array(partitions_of_keys(rows.column(KEY), count), given.type)
        return rows.set_column(place, rows.schema.field(place), pc.coalesce(given, found))

    def _needed(self) -> int:
        if self.kind == "ranges":
            return 1 + max(each.last for each in parse_ranges(self.argument))
        if self.kind == "splits":
            return 1 + len(_split_points(self.argument))
        return 2 if self.kind == "case" else 1


def parse_partitioner(text: str) -> PartitionRule:
    """Parse a rule as written by the user. Raises OptionError."""
    kind, _, argument = text.partition(":")
    check = _CHECKS.get(kind)
    if check is None:
        raise OptionError(
            f"there is no partitioner {kind!r}", f"one of {', '.join(sorted(_CHECKS))}"
        )
    check(argument)
    return PartitionRule(kind, argument)


def parse_ranges(argument: str) -> tuple[CharacterRange, ...]:
    """Parse the argument of ``ranges``. Raises OptionError."""
    return tuple(_parse_range(part) for part in argument.split(","))


# -- arguments of rules


def _parse_range(part: str) -> CharacterRange:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise OptionError(
            f"{part!r} is not a range of characters", "for example ranges:a-z=0,A-Z=1,*=2-3"
        )
    low, high, first = found["low"], found["high"], int(found["first"])
    last = first if found["last"] is None else int(found["last"])
    if (low is not None and low > high) or last < first:
        raise OptionError(f"the range {part!r} ends before it begins", "write the lower end first")
    return CharacterRange(low, high, first, last)


def _split_points(argument: str) -> list[str]:
    points = argument.split(",")
    if not argument or points != sorted(set(points), key=str.encode):
        raise OptionError(
            f"the split points {argument!r} are not in ascending byte order",
            "for example splits:g,n,t",
        )
    return points


def _nothing(argument: str) -> None:
    if argument:
        raise OptionError(
            f"the partitioner takes no argument: {argument!r}",
            "write murmur2, crc32, hash or case alone",
        )


def _expression(argument: str) -> None:
    if not argument.strip():
        raise OptionError(
            "the partitioner sql needs an expression",
            "for example sql:pmod(hash(key), {partitions})",
        )


# -- columns


def _kafka_partitions(count: int) -> Callable[[pa.Array], pa.Array]:
    def partitions(keys: pa.Array) -> pa.Array:
        return pa.array(partitions_of_keys(keys, count), pa.int32())

    return partitions


def _murmur2(_argument: str, count: int) -> Column:
    of_keys: Column = arrow_udf(_kafka_partitions(count), "int", ArrowUDFType.SCALAR)(sf.col(KEY))
    return of_keys


def _crc32(_argument: str, count: int) -> Column:
    return _spread(0, count)


def _hash(_argument: str, count: int) -> Column:
    return sf.pmod(sf.xxhash64(sf.col(KEY)), sf.lit(count)).cast("int")


def _case(_argument: str, count: int) -> Column:
    first = _first_character()
    lower, upper = sf.lower(first), sf.upper(first)
    half = count // 2
    return (
        sf.when((first == lower) & (first != upper), _spread(0, half))
        .when((first == upper) & (first != lower), _spread(half, count - half))
        .otherwise(_spread(0, count))  # no letter, or a script without case
    )


def _ranges(argument: str, _count: int) -> Column:
    first = _first_character()
    placed: Column | None = None
    rest = sf.lit(None).cast("int")
    for each in parse_ranges(argument):
        partition = _spread(each.first, each.last - each.first + 1)
        if each.low is None or each.high is None:
            rest = partition
            continue
        within = first.between(sf.lit(each.low), sf.lit(each.high))
        placed = sf.when(within, partition) if placed is None else placed.when(within, partition)
    return rest if placed is None else placed.otherwise(rest)


def _splits(argument: str, _count: int) -> Column:
    points = _split_points(argument)
    placed = sf.when(sf.col(KEY) < _binary(points[0]), sf.lit(0))
    for partition, point in enumerate(points[1:], 1):
        placed = placed.when(sf.col(KEY) < _binary(point), sf.lit(partition))
    return placed.otherwise(sf.lit(len(points)))


def _sql(argument: str, count: int) -> Column:
    found = sf.expr(argument.replace(_PLACEHOLDER, str(count))).cast("int")
    outside = sf.format_string(
        f"the partitioner returned %s for a key; the topic has partitions 0 to {count - 1}", found
    )
    wrong = (found < 0) | (found >= count)
    return sf.when(wrong, sf.raise_error(outside).cast("int")).otherwise(found)


def _spread(first: int, count: int) -> Column:
    """Return an expression: one of ``count`` partitions from ``first``, by the key's CRC-32."""
    if count == 1:
        return sf.lit(first)
    return (sf.pmod(sf.crc32(sf.col(KEY)), sf.lit(count)) + sf.lit(first)).cast("int")


def _first_character() -> Column:
    return sf.substring(sf.col(KEY).cast("string"), 1, 1)


def _binary(text: str) -> Column:
    return sf.lit(text).cast("binary")


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "murmur2": _nothing,
    "crc32": _nothing,
    "hash": _nothing,
    "case": _nothing,
    "ranges": parse_ranges,
    "splits": _split_points,
    "sql": _expression,
}
_COLUMNS: Final[Mapping[str, Callable[[str, int], Column]]] = {
    "murmur2": _murmur2,
    "crc32": _crc32,
    "hash": _hash,
    "case": _case,
    "ranges": _ranges,
    "splits": _splits,
    "sql": _sql,
}
