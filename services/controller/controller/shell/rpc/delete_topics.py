"""DeleteTopics."""

from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import DeleteTopics
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import read_topic_refs, write_deleted_topics


async def handle(
    node: ControllerNode, request: pb.DeleteTopicsRequest, context: Context
) -> pb.DeleteTopicsResponse:
    """Delete topics by name or by id, each on its own."""
    topics = read_topic_refs(request)
    names = [f"topic:{topic.name or topic.topic_id.hex()}" for topic in topics]
    if (denied := refused(node, request.caller.principal, Operation.DELETE, names)) is not None:
        return write_deleted_topics(denied, "")
    reply, hint = await ask(
        node, context, lambda asked: DeleteTopics(asked, topics), request.timeout_ms
    )
    return write_deleted_topics(reply, hint)
