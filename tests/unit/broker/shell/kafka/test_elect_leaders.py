"""ElectLeaders: a request that fails as a whole."""

import pytest
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.errors import ErrorCode, TidemarkError
from unit.broker.shell.kafka.conftest import Ask, StubController

NAMED = [{"topic": "orders", "partitions": [0, 1]}, {"topic": "compacted", "partitions": [0]}]


@pytest.mark.parametrize("version", range(APIS[ApiKey.ELECT_LEADERS].max + 1))
def test_without_a_controller_each_partition_has_the_error(
    ask: Ask, controller: StubController, version: int
) -> None:
    """Version 0 has no error of the whole request."""
    failed = ErrorCode.NOT_CONTROLLER
    controller.answers["ElectLeaders"] = TidemarkError(failed, "none")
    fields = {"topic_partitions": NAMED, "timeout": 1_000}
    answer = ask(ApiKey.ELECT_LEADERS, fields, version)
    assert answer.error_code == (failed if version else 0)
    assert [
        (topic.topic, one.partition_id, one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ] == [("orders", 0, failed), ("orders", 1, failed), ("compacted", 0, failed)]
    answer = ask(ApiKey.ELECT_LEADERS, {**fields, "topic_partitions": None}, version)
    assert answer.replica_election_results in ((), [])
