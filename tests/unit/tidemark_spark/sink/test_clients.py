import pytest
from tidemark.client.errors import (
    ClientError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from tidemark.client.transactions.sink_batches import (
    BatchCommittedError,
    StaleBatchError,
)
from tidemark.client.transactions.sink_batches import (
    RetiredQueryError as RefusedQueryError,
)
from tidemark.model.errors import ErrorCode
from tidemark_spark.sink.clients import translate_client_errors
from tidemark_spark.sink.errors import RetiredQueryError, SinkError, StaleCheckpointError


def said(problem: ClientError) -> SinkError:
    with pytest.raises(SinkError) as found, translate_client_errors("writing"):
        raise problem
    return found.value


def test_a_hint_is_said_once() -> None:
    problem = UnknownTopicOrPartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'x'")
    told = said(problem)
    assert "no topic 'x'" in told.what
    assert str(told).count("create the topic first") == 1


def test_a_stale_batch_is_a_checkpoint_that_is_behind() -> None:
    assert isinstance(said(StaleBatchError(ErrorCode.INVALID_TXN_STATE, "")), StaleCheckpointError)


def test_a_retired_query_hears_who_writes_now() -> None:
    told = said(RefusedQueryError(ErrorCode.PRODUCER_FENCED, "query 'q' was retired"))
    assert isinstance(told, RetiredQueryError)
    assert "query 'q' was retired" in told.what


def test_a_fenced_writer_hears_that_its_batch_ended() -> None:
    told = said(ProducerFencedError(ErrorCode.INVALID_PRODUCER_EPOCH, "sending 1 records failed"))
    assert "sending 1 records failed" in told.what
    assert "create a new producer" not in str(told), "what a task cannot do"
    assert "The batch has ended" in str(told)


def test_a_committed_batch_is_no_failure() -> None:
    with pytest.raises(BatchCommittedError), translate_client_errors("writing"):
        raise BatchCommittedError("done", "{}")
