"""Rules for partitions as users write them; test_reshard_columns.py has where they put keys."""

import pyarrow as pa
import pytest
from tidemark.codec.murmur2 import partition_for_key
from tidemark_jobs.reshard.partitioners import CharacterRange, parse_partitioner, parse_ranges
from tidemark_spark.errors import OptionError


@pytest.mark.parametrize(
    "text",
    [
        "murmur2",
        "crc32",
        "hash",
        "case",
        "ranges:a-z=0,A-Z=1,*=2-3",
        "splits:g,n,t",
        "sql:pmod(hash(key), {partitions})",
    ],
)
def test_a_rule_survives_as_text(text: str) -> None:
    assert str(parse_partitioner(text)) == text


def test_ranges() -> None:
    assert parse_ranges("a-m=0,*=1-3") == (
        CharacterRange("a", "m", 0, 0),
        CharacterRange(None, None, 1, 3),
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("murmur", "there is no partitioner 'murmur'"),
        ("crc32:7", "takes no argument"),
        ("ranges:", "not a range of characters"),
        ("ranges:a-z", "not a range of characters"),
        ("ranges:ab-z=0", "not a range of characters"),
        ("ranges:z-a=0", "ends before it begins"),
        ("ranges:a-z=2-1", "ends before it begins"),
        ("splits:", "not in ascending byte order"),
        ("splits:n,g", "not in ascending byte order"),
        ("splits:g,g", "not in ascending byte order"),
        ("sql:", "needs an expression"),
    ],
)
def test_what_is_no_rule(text: str, what: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_partitioner(text)
    assert what in caught.value.what


@pytest.mark.parametrize(
    ("text", "needed"),
    [("murmur2", 1), ("case", 2), ("ranges:a-z=0,*=2-5", 6), ("splits:g,n,t", 4)],
)
def test_too_few_partitions(text: str, needed: int) -> None:
    rule = parse_partitioner(text)
    rule.check(needed)
    with pytest.raises(OptionError, match=f"needs {needed} partitions"):
        rule.check(needed - 1)


ROWS = pa.record_batch(
    {
        "key": pa.array([b"anna", b"bert", b"anna"], pa.binary()),
        "partition": pa.array([None, None, 9], pa.int32()),
    }
)


def test_a_late_rule_fills_the_partitions_that_are_null() -> None:
    filled = parse_partitioner("murmur2").fill(ROWS, 7)
    wanted = [partition_for_key(b"anna", 7), partition_for_key(b"bert", 7), 9]
    assert filled.column("partition").to_pylist() == wanted
    assert filled.schema == ROWS.schema


def test_rows_with_partitions_are_not_touched() -> None:
    placed = ROWS.slice(2)
    assert parse_partitioner("murmur2").fill(placed, 7) is placed


@pytest.mark.parametrize("text", ["crc32", "hash", "case", "sql:1"])
def test_sparks_own_rules_are_not_late(text: str) -> None:
    rule = parse_partitioner(text)
    assert not rule.late
    assert rule.fill(ROWS, 7) is ROWS
