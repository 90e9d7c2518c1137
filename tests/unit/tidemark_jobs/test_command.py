"""What a job's caller sees."""

from collections.abc import Callable

import pytest
from tidemark.client.errors import ClientError
from tidemark.model.errors import ErrorCode
from tidemark_jobs.command import DONE, FAILED, INTERRUPTED, WRONG_OPTION, run_command
from tidemark_spark.errors import OptionError, SourceError


def failing(problem: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise problem

    return work


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OptionError("no such rule", "field:3"), WRONG_OPTION),
        (SourceError("no such topic", "make it"), FAILED),
        (ClientError(ErrorCode.NETWORK_EXCEPTION, "no broker answers"), FAILED),
    ],
)
def test_what_went_wrong_is_said_in_a_line(
    problem: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("reshard", failing(problem)) == code
    assert capsys.readouterr().err.startswith("reshard: no ")


def test_work_that_is_done_or_interrupted_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command("reshard", lambda: None) == DONE
    assert run_command("offload", lambda: FAILED) == FAILED
    assert run_command("reshard", failing(KeyboardInterrupt())) == INTERRUPTED
    assert capsys.readouterr().err == ""


def test_a_bug_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command("reshard", failing(ZeroDivisionError()))
