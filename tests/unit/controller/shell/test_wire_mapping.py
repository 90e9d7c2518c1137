import pytest
from controller.core.effects import Reply, TopicResult
from controller.core.inputs import ConfigChange, ConfigOperation, ConfigResource, TopicRef
from controller.shell import wire_mapping
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import topic_id

Alter, Delete = pb.AlterConfigsRequest, pb.DeleteTopicsRequest


@pytest.mark.parametrize(
    ("timeout_ms", "granted"), [(0, 30_000), (-5, 30_000), (7, 7), (10**9, 300_000)]
)
def test_a_timeout_is_kept_within_bounds(timeout_ms: int, granted: int) -> None:
    assert wire_mapping.read_timeout_ms(timeout_ms) == granted


def test_a_topic_is_named_or_identified() -> None:
    request = Delete(topics=[Delete.Topic(name="a"), Delete.Topic(topic_id=topic_id("b"))])
    refs = (TopicRef("a", NO_TOPIC_ID), TopicRef("", topic_id("b")))
    assert wire_mapping.read_topic_refs(request) == refs


def altering(operation: int) -> pb.AlterConfigsRequest:
    change = Alter.Change(name="k", operation=operation, value="v")  # type: ignore[arg-type]
    return Alter(resources=[Alter.Resource(resource_type=2, resource_name="a", changes=[change])])


def test_changes_keep_their_operation() -> None:
    changes = (ConfigChange("k", ConfigOperation.APPEND, "v"),)
    resources = (ConfigResource(2, "a", changes),)
    assert wire_mapping.read_config_resources(altering(2)) == resources


def test_an_unknown_operation_is_recognized() -> None:
    assert wire_mapping.read_config_resources(altering(9)) is None


def test_an_error_of_the_whole_request_has_no_results() -> None:
    wire = wire_mapping.write_created_topics(Reply(1, ErrorCode.NOT_CONTROLLER), "host:1")
    assert (wire.error_code, wire.controller_hint, list(wire.topics)) == (41, "host:1", [])


def test_a_topics_result_is_written_whole() -> None:
    result = TopicResult("a", topic_id("a"), ErrorCode.INVALID_CONFIG, "why", 3, 2, {"k": "v"})
    (wire,) = wire_mapping.write_created_topics(Reply(1, result=(result,)), "").topics
    assert (wire.name, wire.topic_id, wire.error_code) == ("a", topic_id("a"), 40)
    assert (wire.error_message, wire.partition_count, wire.configs["k"]) == ("why", 3, "v")


def test_only_requests_to_the_wrong_controller_get_a_hint() -> None:
    assert wire_mapping.hint_for(ErrorCode.NOT_CONTROLLER, "host:1") == "host:1"
    assert wire_mapping.hint_for(ErrorCode.REQUEST_TIMED_OUT, "host:1") == ""
