import pytest
from tidemark.cli.failure import CommandError
from tidemark.cli.group.reset_options import Scope, choose, parse_duration, parse_scope, parse_time
from tidemark.plans.offset_reset import Goal, Target


def test_only_one_goal_may_be_named() -> None:
    assert choose({"--a": None, "--b": Target(Goal.LATEST)}) == Target(Goal.LATEST)
    with pytest.raises(CommandError, match="none"):
        choose({"--a": None})
    with pytest.raises(CommandError, match="--a and --b"):
        choose({"--a": Target(Goal.LATEST), "--b": Target(Goal.EARLIEST)})


@pytest.mark.parametrize(
    ("text", "scope"),
    [("t", Scope("t")), ("a.b:0", Scope("a.b", (0,))), ("t:1,2", Scope("t", (1, 2)))],
)
def test_a_scope_is_a_topic_or_some_of_its_partitions(text: str, scope: Scope) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("PT30S", 30_000), ("PT1.5S", 1_500), ("P1DT2H3M", 93_780_000), ("P7D", 604_800_000)],
)
def test_durations_are_iso(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "-PT1S"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(CommandError):
        parse_duration(text)


def test_times_are_iso_or_milliseconds() -> None:
    assert parse_time("@1500") == 1_500
    assert parse_time("1970-01-01T00:00:02") == 2_000
    assert parse_time("1970-01-01T02:00:02+02:00") == 2_000
    for text in ("yesterday", "1969-12-31T23:59:59.999", f"@{2**63}"):
        with pytest.raises(CommandError, match="is not a time"):
            parse_time(text)
