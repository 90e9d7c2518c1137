"""RegisterBroker."""

from dataclasses import replace

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import InternalTopic
from tidemark.runtime.metadata_wire import read_broker
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.core.inputs import RegisterBroker
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_held
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused
from controller.shell.wire_mapping import hint_for, write_registered


async def handle(
    node: ControllerNode, request: pb.RegisterBrokerRequest, context: Context
) -> pb.RegisterBrokerResponse:
    """Give a broker its epoch, once its live znode was seen."""
    broker = read_broker(request.broker)
    resource = [f"broker:{broker.broker_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_registered(denied, "")
    found = await node.find_live(broker)
    if found is None:
        reply = Reply(NO_REQUEST, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
        return write_registered(reply, hint_for(reply.error, node.hint))
    broker_epoch, listing = found
    entitled = replace(
        broker,
        broker_epoch=broker_epoch,
        fenced=False,
        shutting_down=False,
        lease_ms=request.lease_ms,
        internal_topics=tuple(
            InternalTopic(one.name, one.replication_factor, one.min_insync_replicas)
            for one in request.internal_topics
        ),
        boot_id=request.boot_id or broker.boot_id,
        log_dir_ids=tuple(request.log_dir_ids) or broker.log_dir_ids,
    )
    previous_epoch = BrokerEpoch(request.previous_broker_epoch)
    held = read_held(request.held) if request.HasField("held") else None
    reply, hint = await ask(
        node,
        context,
        lambda asked: RegisterBroker(
            asked,
            entitled,
            request.cluster_id,
            listing,
            clean_stop=request.clean_stop,
            previous_broker_epoch=previous_epoch,
            held=held,
        ),
    )
    return write_registered(reply, hint)
