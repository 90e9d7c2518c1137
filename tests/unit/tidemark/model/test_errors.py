import kafka.errors
import pytest
from tidemark.model.errors import ErrorCode, TidemarkError

# kafka-python keeps the names that Kafka had before it renamed these.
RENAMED = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "RECORD_LIST_TOO_LARGE": "RECORD_LIST_TOO_LARGE",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.value <= 127])
def test_numbers_and_names_agree_with_another_implementation(code: ErrorCode) -> None:
    theirs = kafka.errors.for_code(code.value)
    name = theirs.message.upper()
    assert RENAMED.get(name, name) == code.name


def test_an_error_says_what_and_its_code() -> None:
    error = TidemarkError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'a' does not exist")
    assert str(error) == "topic 'a' does not exist (UNKNOWN_TOPIC_OR_PARTITION)"


def test_retriable_is_kafkas() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.INVALID_CONFIG.retriable


def test_a_code_of_a_later_release_is_an_unknown_error() -> None:
    assert ErrorCode(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR
