"""CreateTopics."""

import secrets

from tidemark.model.authorization import Operation
from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark_wire.v1 import controller_pb2 as pb

from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import (
    read_creation,
    read_requester,
    timeout_asked,
    topics_named,
    write_created_topics,
)


def _random_topic_id() -> TopicId:
    topic_id = TopicId(secrets.token_bytes(16))
    assert topic_id != NO_TOPIC_ID, "all zeros means: no id"
    return topic_id


async def handle(
    node: ControllerNode, request: pb.CreateTopicsRequest, context: Context
) -> pb.CreateTopicsResponse:
    """Create topics. Each topic succeeds or fails alone."""
    topics = topics_named(request)
    if (denied := refused(node, read_requester(request), Operation.CREATE, topics)) is not None:
        return write_created_topics(denied, "")
    topic_ids = [_random_topic_id() for _ in topics]
    make = read_creation(request, topic_ids, node.dice())
    reply, hint = await ask(node, context, make, timeout_asked(request))
    return write_created_topics(reply, hint)
