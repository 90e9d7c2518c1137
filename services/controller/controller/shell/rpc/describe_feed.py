"""DescribeFeed."""

from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import NO_REQUEST, Context, refused
from controller.shell.wire_mapping import hint_for, read_requester, write_feed, write_no_feed


async def handle(
    node: ControllerNode, request: pb.DescribeFeedRequest, context: Context
) -> pb.DescribeFeedResponse:
    """Describe the feed of the active controller."""
    del context
    denied = refused(node, read_requester(request), Operation.DESCRIBE, (CLUSTER,))
    if denied is None and not (node.is_active and node.feed.is_open):
        denied = Reply(NO_REQUEST, ErrorCode.NOT_CONTROLLER)
    if denied is not None:
        return write_no_feed(denied, hint_for(denied.error, node.hint))
    return write_feed(node.controller_id, node.hint, node.feed)
