"""ReportReplicas."""

import logging

from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import ReportReplicas
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_unsound, write_reported
from controller.shell.rpc.call import Context, ask_for_broker

log = logging.getLogger(__name__)


async def handle(
    node: ControllerNode, request: pb.ReportReplicasRequest, context: Context
) -> pb.ReportReplicasResponse:
    """Take replicas out of ISR and ELR whose disk failed, or lost bytes."""
    replicas = read_unsound(request)
    reply, hint = await ask_for_broker(
        node,
        context,
        request,
        lambda asked, broker, epoch: ReportReplicas(asked, broker, epoch, replicas),
    )
    if not reply.error:
        log.warning(
            "unsound replicas reported",
            extra=fields(
                broker=request.broker_id,
                replicas=len(replicas),
                reasons=sorted({one.reason for one in request.replicas})[:3],
            ),
        )
    return write_reported(reply, hint)
