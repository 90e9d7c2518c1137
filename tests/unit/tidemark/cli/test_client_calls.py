import pytest
from tidemark.cli.client_calls import as_command_error, run
from tidemark.cli.failure import CommandError
from tidemark.client.errors import (
    AuthorizationError,
    ClientError,
    ConnectionLostError,
    TopicAlreadyExistsError,
)
from tidemark.model.errors import ErrorCode
from tidemark.runtime.exit_codes import ExitCode

EXISTS = TopicAlreadyExistsError(ErrorCode.TOPIC_ALREADY_EXISTS, "creating topic a")
AWAY = ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "no broker answers", where="b:9092")
FORBIDDEN = AuthorizationError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "reading a")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EXISTS, ExitCode.FAILED),
        (AWAY, ExitCode.UNAVAILABLE),
        (FORBIDDEN, ExitCode.NO_PERMISSION),
    ],
)
def test_each_failure_has_its_exit_code(error: ClientError, code: ExitCode) -> None:
    assert as_command_error(error).exit_code is code


def test_a_failure_says_what_where_and_what_to_try() -> None:
    told = as_command_error(AWAY)
    assert told.what == "no broker answers at b:9092 (NETWORK_EXCEPTION)"
    assert told.hint == "check the address and that the broker is up"


async def _fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [AWAY, ExceptionGroup("tasks", [ExceptionGroup("x", [AWAY])])])
def test_what_the_client_raises_ends_the_command(error: BaseException) -> None:
    with pytest.raises(CommandError, match="no broker answers"):
        run(_fail(error))


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(ExceptionGroup):
        run(_fail(ExceptionGroup("tasks", [AssertionError()])))
