"""What a resharding query must not change, as text and compared."""

from dataclasses import replace

import pytest
from tidemark_jobs.keys import parse_key
from tidemark_jobs.reshard.partitioners import parse_partitioner
from tidemark_jobs.reshard.plan import (
    DeadLetters,
    Plan,
    check_unchanged,
    plan_from_json,
    plan_to_json,
)
from tidemark_spark.errors import OptionError

PLAN = Plan(
    target="by-user",
    partitions=4,
    key=parse_key("field:3"),
    partitioner=parse_partitioner("murmur2"),
    dead_letters=DeadLetters("lost", 2),
)


def refusal(wanted: Plan) -> OptionError | None:
    """Refusal of another plan for the same checkpoint, if it is refused."""
    try:
        check_unchanged(PLAN, wanted)
    except OptionError as problem:
        return problem
    return None


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, dead_letters=None)])
def test_a_plan_survives_as_text(plan: Plan) -> None:
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", plan_to_json(PLAN).replace("1", "9", 1)])
def test_another_text(text: str) -> None:
    with pytest.raises(OptionError, match="damaged or from another release"):
        plan_from_json(text)


def test_slots_count_dead_letters() -> None:
    assert PLAN.slots == 6


def test_a_plan_in_words() -> None:
    assert str(PLAN) == "by-user: 4 partitions by murmur2 of field:3, dead letters in lost"


def test_growth_and_dead_letters_may_change() -> None:
    assert refusal(replace(PLAN, partitions=8, dead_letters=None)) is None


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, target="by-host"),
        replace(PLAN, key=parse_key("field:2")),
        replace(PLAN, partitioner=parse_partitioner("crc32")),
    ],
)
def test_a_key_is_not_placed_otherwise_than_before(other: Plan) -> None:
    assert "in two partitions" in str(refusal(other))
