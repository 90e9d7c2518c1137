"""Arguments that commands share: a filter that nothing can pass is refused."""

from collections.abc import Sequence

import pytest
from broker.core.groups.classic.states import GroupState as ClassicState
from broker.core.groups.consumer.state import GroupState as ConsumerState
from tidemark.cli import main as command_line
from tidemark.cli.arguments import GROUP_STATES, among
from tidemark.model.share_group_configs import share_group_config
from tidemark.runtime.exit_codes import ExitCode

DAY_S = 24 * 3_600
DELAY_BOUND = "share.release.backoff.max.ms"


def test_the_states_are_those_of_groups() -> None:
    states = {state.value for kind in (ClassicState, ConsumerState) for state in kind}
    assert set(GROUP_STATES) == states


def test_a_state_may_be_written_in_any_case() -> None:
    assert among(["empty", "Stable"], GROUP_STATES, "--state") == ["empty", "Stable"]
    assert among(None, GROUP_STATES, "--state") == []


@pytest.mark.feature("AD53")
@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("group", "list", "--state", "Running"), "Running"),
        (("group", "list", "--kind", "streams"), "streams"),
        (("share", "list", "--state", "Rebalancing"), "Rebalancing"),
    ],
)
def test_a_list_is_not_empty_because_a_filter_is_misspelt(
    words: Sequence[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run([*words, "-b", "127.0.0.1:1"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert repr(value) in said
    assert "Empty" in said or "classic" in said


@pytest.mark.feature("AD53")
@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("share", "consume", "g", "t", "--idle"),
        ("share", "consume", "g", "t", "--outcome", "release", "--release-delay"),
        ("cluster", "health", "--watch", "--timeout"),
        ("cluster", "health", "--watch", "--interval"),
        ("cluster", "reassign", "watch", "--interval"),
        ("dev", "down", "--timeout"),
    ],
)
def test_seconds_that_are_no_time_are_refused(
    words: Sequence[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run([*words, value]) == ExitCode.USAGE
    assert words[-1] in capsys.readouterr().err


@pytest.mark.feature("AD53")
def test_a_release_is_delayed_for_as_long_as_a_group_may_allow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert share_group_config({DELAY_BOUND: f"{DAY_S * 1_000}"})
    with pytest.raises(ValueError, match=DELAY_BOUND):
        share_group_config({DELAY_BOUND: f"{DAY_S * 1_000 + 1}"})
    words = ("share", "consume", "g", "t", "--outcome", "release", "--release-delay")
    assert command_line.run([*words, f"{DAY_S + 1}"]) == ExitCode.USAGE
    assert f"{DAY_S}" in capsys.readouterr().err
