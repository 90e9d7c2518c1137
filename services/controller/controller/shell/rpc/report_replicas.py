"""ReportReplicas."""

import logging

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import ReportReplicas
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_unsound, write_reported
from controller.shell.rpc.call import Context, ask, refused

log = logging.getLogger(__name__)


async def handle(
    node: ControllerNode, request: pb.ReportReplicasRequest, context: Context
) -> pb.ReportReplicasResponse:
    """Take replicas out of ISR and ELR whose disk failed, or lost bytes."""
    resource = [f"broker:{request.broker_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_reported(denied, "")
    replicas = read_unsound(request)
    reply, hint = await ask(
        node,
        context,
        lambda asked: ReportReplicas(
            asked, BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch), replicas
        ),
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
