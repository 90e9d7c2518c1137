"""What the rules for keys find, and where the partitioners put what they found."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tidemark.codec import murmur2
from tidemark_jobs.keys import parse_key
from tidemark_jobs.reshard.partitioners import parse_partitioner

LOG_LINE = (
    b'83.149.9.216 - %b [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 203023'
    b' "http://example.com/" "Mozilla/5.0 (X11)"'
)
QUERY = b"2026-03-01T00:00:00Z\tsearch-07\tuser-000012\twhere to buy an iron"


def keys_of(
    spark: SparkSession,
    rule: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] = (),
) -> list[bytes | None]:
    own = list(keys) or [None] * len(values)
    table = pa.table({"key": pa.array(own, pa.binary()), "value": pa.array(values, pa.binary())})
    frame = spark.createDataFrame(table).withColumn("text", sf.col("value").cast("string"))
    rows = frame.select(parse_key(rule).column().alias("key")).collect()
    return [None if row.key is None else bytes(row.key) for row in rows]


def partitions_of(
    spark: SparkSession, rule: str, keys: Sequence[bytes | None], count: int
) -> list[int | None]:
    frame = spark.createDataFrame(pa.table({"key": pa.array(keys, pa.binary())}))
    rows = frame.select(parse_partitioner(rule).column(count).alias("partition")).collect()
    return [row.partition for row in rows]


def test_the_records_own_key(spark: SparkSession) -> None:
    keys = [b"a", b"\xff\x00", b"", None]
    assert keys_of(spark, "key", [b"v"] * 4, keys) == [b"a", b"\xff\x00", None, None]


@pytest.mark.parametrize(
    ("rule", "user", "nobody"),
    [
        ("access-log:ip", b"83.149.9.216", b"83.149.9.216"),
        ("access-log:ident", None, None),
        ("access-log:user", b"frank", None),
        ("access-log:user-or-ip", b"frank", b"83.149.9.216"),
    ],
)
def test_fields_of_an_access_log(
    spark: SparkSession, rule: str, user: bytes | None, nobody: bytes | None
) -> None:
    lines = [LOG_LINE % b"frank", LOG_LINE % b"-", b"GET /", b"", None]
    assert keys_of(spark, rule, lines) == [user, nobody, None, None, None]


def test_a_user_with_a_blank(spark: SparkSession) -> None:
    assert keys_of(spark, "access-log:user", [LOG_LINE % b"ann lee"]) == [b"ann lee"]


def test_a_field_of_json(spark: SparkSession) -> None:
    values = [
        b'{"user": {"id": "anna"}}',
        b'{"user": {"id": 17}}',
        '{"user": {"id": "аня"}}'.encode(),
        b'{"user": {"id": null}}',
        b'{"user": {"id": ""}}',
        b'{"user": 5}',
        b"no json",
        b"",
    ]
    found = [b"anna", b"17", "аня".encode(), None, None, None, None, None]
    assert keys_of(spark, "json:user.id", values) == found


def test_a_field_of_a_line(spark: SparkSession) -> None:
    lines = [QUERY, b"one\ttwo", b"one\ttwo\t", b"\t\t\xff\xfe\tlatin", b"", None]
    found = [b"user-000012", None, None, b"\xff\xfe", None, None]
    assert keys_of(spark, "field:3", lines) == found


def test_the_first_field_between_other_separators(spark: SparkSession) -> None:
    lines = [b"a||b", b"alone", b"||b", b""]
    assert keys_of(spark, "field:1:||", lines) == [b"a", b"alone", None, None]


def test_a_group_of_a_regular_expression(spark: SparkSession) -> None:
    values = [b"x user=anna y", b"user=", b"nobody"]
    assert keys_of(spark, r"regex:user=(\w*)", values) == [b"anna", None, None]


def test_an_expression(spark: SparkSession) -> None:
    values = [b"ANNA buys", b"Bert sells"]
    assert keys_of(spark, "sql:lower(split(text, ' ')[0])", values) == [b"anna", b"bert"]


def test_murmur2_is_kafkas(spark: SparkSession) -> None:
    keys = [b"k" * length + bytes([length]) for length in range(40)]
    expected = [murmur2.partition_for_key(key, 7) for key in keys]
    assert partitions_of(spark, "murmur2", [*keys, None], 7) == [*expected, None]


@pytest.mark.feature("R05")
def test_lower_case_to_the_first_partition_and_upper_case_to_the_second(
    spark: SparkSession,
) -> None:
    keys = [b"anna", b"Anna", "ёлка".encode(), "Ёлка".encode(), b"zoe", b"Zoe"]
    assert partitions_of(spark, "case", keys, 2) == [0, 1, 0, 1, 0, 1]


def test_case_fills_both_halves(spark: SparkSession) -> None:
    lower = [f"user-{number}".encode() for number in range(50)]
    upper = [key.capitalize() for key in lower]
    assert set(partitions_of(spark, "case", lower, 5)) == {0, 1}
    assert set(partitions_of(spark, "case", upper, 5)) == {2, 3, 4}


def test_case_of_no_letter(spark: SparkSession) -> None:
    numbers = [str(number).encode() for number in range(50)]
    assert set(partitions_of(spark, "case", numbers, 4)) == {0, 1, 2, 3}


@pytest.mark.feature("R05")
def test_ranges_of_first_characters(spark: SparkSession) -> None:
    keys = [b"anna", b"max", b"nina", b"zoe", b"Anna", b"7", None]
    assert partitions_of(spark, "ranges:a-m=0,n-z=1,A-Z=2,*=3", keys, 4) == [
        *(0, 0, 1, 1, 2, 3),
        None,
    ]


def test_a_range_of_several_partitions(spark: SparkSession) -> None:
    keys = [f"a{number}".encode() for number in range(50)]
    assert set(partitions_of(spark, "ranges:a-z=1-3", keys, 4)) == {1, 2, 3}


def test_no_range_fits(spark: SparkSession) -> None:
    assert partitions_of(spark, "ranges:a-z=0", [b"a", b"7"], 2) == [0, None]


def test_only_the_rest(spark: SparkSession) -> None:
    assert partitions_of(spark, "ranges:*=1", [b"a", b"7"], 2) == [1, 1]


def test_places_between_split_points(spark: SparkSession) -> None:
    keys = [b"anna", b"g", b"max", b"n", b"zoe", b"\xff", b"A"]
    assert partitions_of(spark, "splits:g,n,t", keys, 4) == [0, 1, 1, 2, 3, 3, 0]


@pytest.mark.parametrize("rule", ["crc32", "hash", "sql:pmod(hash(key), {partitions})"])
def test_hashes_reach_every_partition(spark: SparkSession, rule: str) -> None:
    keys = [f"user-{number}".encode() for number in range(100)]
    assert set(partitions_of(spark, rule, keys, 8)) == set(range(8))


def test_crc32_is_librdkafkas(spark: SparkSession) -> None:
    assert partitions_of(spark, "crc32", [b"123456789"], 1_000) == [0xCBF43926 % 1_000]


@pytest.mark.parametrize("wrong", ["-1", "{partitions}"])
def test_a_partition_that_is_none(spark: SparkSession, wrong: str) -> None:
    with pytest.raises(PySparkException, match="the topic has partitions 0 to 7"):
        partitions_of(spark, f"sql:{wrong}", [b"anna"], 8)
