import pytest
from tidemark.client import errors
from tidemark.client.errors import ClientError, error_for
from tidemark.model.errors import ErrorCode, TidemarkError


@pytest.mark.feature("K05")
def test_a_gap_in_sequence_numbers_has_the_seeds_name_too() -> None:
    error = error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sending failed")
    assert isinstance(error, errors.InvalidSequenceNumber)
    assert isinstance(error, errors.OutOfOrderSequenceError)


@pytest.mark.feature("K06")
def test_a_duplicate_has_the_seeds_name_too() -> None:
    error = error_for(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "sending failed")
    assert isinstance(error, errors.DuplicateSequenceNumber)


def test_too_few_replicas_is_an_error_of_its_own() -> None:
    error = error_for(ErrorCode.NOT_ENOUGH_REPLICAS, "sending failed", where="broker 1")
    assert isinstance(error, errors.NotEnoughReplicasError)
    assert error.retriable


def test_an_error_says_what_where_and_what_to_try() -> None:
    error = error_for(3, "fetching t-0 failed", where="broker 2 (h:9)", detail="no such topic")
    assert "fetching t-0 failed: no such topic at broker 2 (h:9); create the topic" in str(error)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(error)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_becomes_a_client_error_that_keeps_it(code: ErrorCode) -> None:
    error = error_for(code, "asking failed")
    assert isinstance(error, ClientError)
    assert isinstance(error, TidemarkError)
    assert error.code is code


def test_a_number_from_a_later_release_is_named() -> None:
    assert "error 999, unknown to this client" in str(error_for(999, "asking failed"))


def test_all_names_exist() -> None:
    assert all(hasattr(errors, name) for name in errors.__all__)
