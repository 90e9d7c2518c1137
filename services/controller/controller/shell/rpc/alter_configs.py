"""AlterConfigs: both of Kafka's, the incremental one and the one that replaces all."""

from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.core.inputs import AlterConfigs
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused
from controller.shell.wire_mapping import read_config_resources, write_altered_configs


async def handle(
    node: ControllerNode, request: pb.AlterConfigsRequest, context: Context
) -> pb.AlterConfigsResponse:
    """Change dynamic configuration of topics and brokers, each resource on its own."""
    names = [f"{item.resource_type}:{item.resource_name}" for item in request.resources]
    principal = request.caller.principal
    if (denied := refused(node, principal, Operation.ALTER_CONFIGS, names)) is not None:
        return write_altered_configs(denied, "")
    resources = read_config_resources(request)
    if resources is None:
        return write_altered_configs(Reply(NO_REQUEST, ErrorCode.INVALID_REQUEST), "")
    reply, hint = await ask(
        node,
        context,
        lambda asked: AlterConfigs(asked, resources, request.validate_only),
        request.timeout_ms,
    )
    return write_altered_configs(reply, hint)
