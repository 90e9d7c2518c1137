import pytest
from tidemark.cli.client_calls import as_command_error, run
from tidemark.cli.failure import CommandError
from tidemark.client.errors import (
    AuthorizationError,
    ClientError,
    ConnectionLostError,
    TopicAlreadyExistsError,
    error_for,
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
    told = as_command_error(AWAY, api="Metadata")
    assert list(told.lines()) == [
        "error: no broker answers (NETWORK_EXCEPTION)",
        "  address: b:9092",
        "  api: Metadata",
        "  try: check the address and that the broker is up",
    ]


def test_a_failure_that_does_not_say_where_has_the_address_of_the_command() -> None:
    for error, where in ((AWAY, "b:9092"), (FORBIDDEN, "c:9092")):
        assert as_command_error(error, address="c:9092").address == where


@pytest.mark.feature("AD53")
@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("cannot connect: Connection refused", "nothing listens there"),
        ("no connection within 100 ms", "the host is down"),
        ("cannot connect: Name or service not known", "misspelt"),
        ("the peer does not speak Kafka's protocol: a frame", "TLS"),
    ],
)
def test_a_lost_connection_has_its_likely_cause(words: str, cause: str) -> None:
    lost = ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, f"no broker answers (b:1: {words})")
    told = as_command_error(lost)
    assert cause in told.cause
    assert "tidemark" in told.hint


@pytest.mark.feature("AD53")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.SECURITY_DISABLED, "authorizer.class.name"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic can have this name"),
        (ErrorCode.INVALID_PARTITIONS, "at least one partition"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
    ],
)
def test_what_a_cluster_refuses_has_its_cause_and_what_to_try(code: ErrorCode, words: str) -> None:
    told = as_command_error(error_for(code, "it failed", where="b:9092"))
    assert words in told.cause
    assert told.hint


@pytest.mark.feature("AD53")
def test_an_explanation_names_commands_that_exist() -> None:
    error = error_for(ErrorCode.GROUP_ID_NOT_FOUND, "describing group 'g' failed", where="b:9092")
    assert list(as_command_error(error).lines()) == [
        "error: describing group 'g' failed (GROUP_ID_NOT_FOUND)",
        "  address: b:9092",
        "  cause: it never committed, was deleted, or its offsets expired",
        "  try: tidemark group list",
    ]


async def _fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [AWAY, ExceptionGroup("tasks", [ExceptionGroup("x", [AWAY])])])
def test_what_the_client_raises_ends_the_command(error: BaseException) -> None:
    with pytest.raises(CommandError, match="no broker answers"):
        run(_fail(error))


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(ExceptionGroup):
        run(_fail(ExceptionGroup("tasks", [AssertionError()])))
