"""Kafka's reassignment JSON, read and written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.cli.cluster.reassign_file import parse, parse_plan, read_file, text_of
from tidemark.cli.failure import CommandError
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode

NAMES = st.builds(TopicPartition, st.text("abc.-_", min_size=1), st.integers(0, 9))
REPLICAS = st.lists(st.integers(0, 99), min_size=1, unique=True).map(tuple)


@given(st.dictionaries(NAMES, REPLICAS, min_size=1))
def test_what_is_written_is_read(assignment: dict[TopicPartition, tuple[int, ...]]) -> None:
    assert parse(text_of(assignment), "plan") == assignment


def test_it_is_kafkas_form() -> None:
    assert (
        text_of({TopicPartition("orders", 0): (1, 2)})
        == '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}'
    )


def test_a_plan_without_moves_is_a_plan() -> None:
    assert parse(text_of({}), "plan") == {}


def test_log_dirs_may_be_any() -> None:
    text = '{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
    assert parse(text, "plan") == {TopicPartition("a", 0): (1,)}


@pytest.mark.feature("AD94")
def test_a_replica_may_have_a_directory() -> None:
    replicas = '"topic":"a","partition":0,"replicas":[1,2]'
    text = f'{{"partitions":[{{{replicas},"log_dirs":["any","/data"]}}]}}'
    assert parse_plan(text, "plan").directories == {(TopicPartition("a", 0), 2): "/data"}


ONE = '{"topic":"a","partition":0,"replicas":[1]}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "plan, line 1, column 1"),
        ('{"version":1,\n"partitions":[,]}', "plan, line 2, column 15"),
        ("[]", "not an object"),
        ('{"version":2,"partitions":[]}', "version is 2"),
        ('{"version":1}', '"partitions" is missing'),
        ('{"partitions":[3]}', r"partitions\[0\] is not an object"),
        ('{"partitions":[{"partition":0,"replicas":[1]}]}', '"topic" is missing'),
        ('{"partitions":[{"topic":"a","partition":true,"replicas":[1]}]}', '"partition" is'),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[]}]}', '"replicas" is'),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":["1"]}]}', '"replicas" is'),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":[1,1]}]}',
            "a-0 names a broker twice",
        ),
        (f'{{"partitions":[{ONE},{ONE}]}}', r"partitions\[1\]: a-0 is listed twice"),
        (f'{{"partitions":[{ONE[:-1]},"log_dirs":["data"]}}]}}', "no absolute path"),
        (f'{{"partitions":[{ONE[:-1]},"log_dirs":["/a","/b"]}}]}}', "not one directory for each"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, told: str) -> None:
    with pytest.raises(CommandError, match=told) as failure:
        parse(text, "plan")
    assert failure.value.exit_code is ExitCode.DATA
    assert '{"version":1' in failure.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read") as failure:
        read_file(str(tmp_path / "none.json"))
    assert failure.value.exit_code is ExitCode.NO_INPUT
