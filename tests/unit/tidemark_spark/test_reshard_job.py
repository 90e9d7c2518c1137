"""The command line of ``reshard``, and when growth of the target is refused."""

import pytest
from jobs import reshard
from jobs.reshard import GrownTopicError, Options, Target, parse
from tidemark_spark.errors import OptionError
from tidemark_spark.keys import KeyRule
from tidemark_spark.partitioners import PartitionRule
from tidemark_spark.reshard_plan import DeadLetters, Plan

REQUIRED = ["--bootstrap-servers", "b:9292", "--source", "a", "--target", "b", "--checkpoint", "c/"]


def options(*more: str) -> Options:
    return parse([*REQUIRED, *more])


def test_defaults() -> None:
    found = options()
    assert (found.key, found.partitioner) == (KeyRule("key"), PartitionRule("murmur2"))
    assert (found.group_id, found.sink_id) == ("reshard-a-b", "reshard-a-b")
    assert found.checkpoint == "c"
    assert found.exactly_once
    assert not found.available_now


def test_several_sources() -> None:
    assert parse([*REQUIRED[:2], "--source", "a,b", *REQUIRED[4:5], "c", *REQUIRED[6:]]) == (
        parse([*REQUIRED, "--source", "a,b", "--target", "c"])
    )


def test_options_of_source_and_sink() -> None:
    found = options(
        *("--max-offsets-per-trigger", "500", "--source-option", "minPartitions=8"),
        *("--sink-option", "compression.type=lz4"),
    )
    assert found.source_options == {"maxOffsetsPerTrigger": "500", "minPartitions": "8"}
    assert found.sink_options == {"compression.type": "lz4"}


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--target", "a"], "a is source and target"),
        (["--dead-letters", "b"], "b is source or target"),
        (["--tasks", "0"], "--tasks 0 must be above zero"),
        (["--key", "user"], "no rule for keys"),
        (["--partitioner", "random"], "no partitioner"),
        (["--sink-option", "compression"], "--sink-option compression is not NAME=VALUE"),
    ],
)
def test_wrong_options(more: list[str], what: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(*more)
    assert what in caught.value.what


def test_a_wrong_option_is_told_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert reshard.main([*REQUIRED, "--key", "user"]) == 2
    assert capsys.readouterr().err.startswith("reshard: no rule for keys is called 'user'\n  try: ")


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
