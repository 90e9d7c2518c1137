"""CreateTopics."""

import secrets

from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import CreateTopics
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import read_new_topics, write_created_topics


def _random_topic_id() -> TopicId:
    topic_id = TopicId(secrets.token_bytes(16))
    assert topic_id != NO_TOPIC_ID, "all zeros means: no id"
    return topic_id


async def handle(
    node: ControllerNode, request: pb.CreateTopicsRequest, context: Context
) -> pb.CreateTopicsResponse:
    """Create topics, each on its own."""
    names = [f"topic:{topic.name}" for topic in request.topics]
    if (denied := refused(node, request.caller.principal, Operation.CREATE, names)) is not None:
        return write_created_topics(denied, "")
    topics = read_new_topics(request, [_random_topic_id() for _ in request.topics])
    dice = node.dice()
    reply, hint = await ask(
        node,
        context,
        lambda asked: CreateTopics(asked, topics, dice, request.validate_only),
        request.timeout_ms,
    )
    return write_created_topics(reply, hint)
