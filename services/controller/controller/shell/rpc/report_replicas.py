"""ReportReplicas."""

import logging
from typing import Final

from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import ReportReplicas
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import (
    read_broker_ref,
    read_reasons,
    read_unsound,
    write_reported,
)
from controller.shell.rpc.call import Context, ask, refused_member

log = logging.getLogger(__name__)

_REASONS_LOGGED: Final = 3


async def handle(
    node: ControllerNode, request: pb.ReportReplicasRequest, context: Context
) -> pb.ReportReplicasResponse:
    """Remove replicas whose disk failed or lost bytes from ISR and ELR."""
    if (denied := refused_member(node)) is not None:
        return write_reported(denied, "")
    broker_id, broker_epoch = read_broker_ref(request)
    replicas = read_unsound(request)
    reply, hint = await ask(
        node, context, lambda header: ReportReplicas(header, broker_id, broker_epoch, replicas)
    )
    if not reply.error:
        log.warning(
            "unsound replicas reported",
            extra=fields(
                broker=broker_id,
                replicas=len(replicas),
                reasons=read_reasons(request)[:_REASONS_LOGGED],
            ),
        )
    return write_reported(reply, hint)
