"""The plan for a target topic, and when a change of its partitions is refused."""

import pickle

import pyarrow as pa
import pytest
from tidemark.codec.murmur2 import partition_for_key
from tidemark_jobs.keys import KeyRule
from tidemark_jobs.reshard.command import parse
from tidemark_jobs.reshard.options import Options
from tidemark_jobs.reshard.partitioners import PartitionRule
from tidemark_jobs.reshard.plan import DeadLetters, Plan
from tidemark_jobs.reshard.query import (
    IN_PLACE_PAIRS_MAX,
    Fill,
    GrownTopicError,
    Target,
    is_in_place,
)
from tidemark_spark.errors import OptionError

REQUIRED = ["--bootstrap-servers", "b:9292", "--source", "a", "--target", "b", "--checkpoint", "c"]


def options(*more: str) -> Options:
    return parse([*REQUIRED, *more])


def plan_of(partitions: int) -> Plan:
    return Plan(
        target="b", partitions=partitions, key=KeyRule("key"), partitioner=PartitionRule("murmur2")
    )


def test_a_plan_of_the_topics_there_are() -> None:
    target = Target({"b": 4, "lost": 2}.__getitem__, options("--dead-letters", "lost"))
    plan = target.plan()
    assert (plan.partitions, plan.dead_letters) == (4, DeadLetters("lost", 2))


def test_too_few_partitions_for_the_rule() -> None:
    with pytest.raises(OptionError, match="needs 2 partitions"):
        Target(lambda _: 1, options("--partitioner", "case")).plan()


def test_as_many_partitions_as_before() -> None:
    Target(lambda _: 4, options()).check(plan_of(4))


@pytest.mark.parametrize(("more", "count"), [([], 5), ([], 3), (["--pin-partitions"], 3)])
def test_another_number_of_partitions(more: list[str], count: int) -> None:
    with pytest.raises(GrownTopicError, match=f"b has {count} partitions now"):
        Target(lambda _: count, options(*more)).check(plan_of(4))


def test_growth_that_is_pinned() -> None:
    Target(lambda _: 5, options("--pin-partitions")).check(plan_of(4))


def test_few_pairs_of_a_task_and_a_partition_are_written_in_place() -> None:
    assert is_in_place(options(), plan_of(IN_PLACE_PAIRS_MAX // 4), 4)
    assert not is_in_place(options(), plan_of(IN_PLACE_PAIRS_MAX // 4 + 1), 4)


@pytest.mark.parametrize(
    "more",
    [
        ["--shuffle", "always"],
        ["--source-option", "minPartitions=8"],
        ["--source-option", "MAXRECORDSPERPARTITION=100"],
    ],
)
def test_rows_are_shuffled_where_asked_or_where_a_source_partition_has_several_tasks(
    more: list[str],
) -> None:
    assert not is_in_place(options(*more), plan_of(4), 2)


def test_the_partitions_of_the_plan_are_filled_in_a_task() -> None:
    rows = pa.record_batch(
        {"key": pa.array([b"anna"], pa.binary()), "partition": pa.array([None], pa.int32())}
    )
    filled = pickle.loads(pickle.dumps(Fill(plan_of(7))))(rows)
    assert filled.column("partition").to_pylist() == [partition_for_key(b"anna", 7)]
