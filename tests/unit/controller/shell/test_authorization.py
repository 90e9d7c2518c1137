from types import SimpleNamespace
from typing import Any

from controller.shell.rpc.call import refused, refused_member
from controller.shell.wire_mapping import configs_named, topics_to_delete
from tidemark.model.authorization import (
    CLUSTER,
    Authorizer,
    Operation,
    Requester,
    Resource,
    group_resource,
    topic_resource,
)
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import topic_id


class Denying(Authorizer):
    """Authorizer that denies one resource."""

    def __init__(self, denied: Resource) -> None:
        self.denied = denied

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return super().authorize(requester, operation, resource) and resource != self.denied


def denying(denied: Resource) -> Any:
    return SimpleNamespace(authorizer=Denying(denied))


def test_a_request_about_a_denied_topic_is_refused() -> None:
    node, topics = denying(topic_resource("b")), [topic_resource("a"), topic_resource("b")]
    reply = refused(node, Requester("User:x", ""), Operation.CREATE, topics)
    assert reply is not None
    assert reply.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert reply.message == "User:x may not CREATE"
    assert refused(node, Requester("User:x", ""), Operation.CREATE, topics[:1]) is None


def test_a_member_needs_the_cluster() -> None:
    assert refused_member(denying(CLUSTER)) is not None
    assert refused_member(denying(topic_resource("a"))) is None


def test_configuration_belongs_to_topics_to_groups_or_to_the_cluster() -> None:
    named = ((2, "a"), (32, "g"), (4, "1"))
    resources = [
        pb.AlterConfigsRequest.Resource(resource_type=number, resource_name=name)
        for number, name in named
    ]
    request = pb.AlterConfigsRequest(resources=resources)
    assert configs_named(request) == [topic_resource("a"), group_resource("g"), CLUSTER]


def test_a_topic_to_delete_may_be_named_by_its_id() -> None:
    topic = pb.DeleteTopicsRequest.Topic
    request = pb.DeleteTopicsRequest(topics=[topic(name="a"), topic(topic_id=topic_id("b"))])
    assert topics_to_delete(request) == [topic_resource("a"), topic_resource(topic_id("b").hex())]
