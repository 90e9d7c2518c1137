"""Producer ids for this broker's clients, from blocks that the controller hands out."""

from collections.abc import Callable
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.producer_ids import ProducerIdBlock, ProducerIds

from broker.shell.wire_mapping import read_producer_id_block, write_allocate_producer_ids

ALLOCATE_TIMEOUT_S: Final = 5.0


def from_controller(
    controller: ControllerClient, registration: Callable[[], tuple[int, int]]
) -> ProducerIds:
    """Return ids from the active controller. ``registration`` returns this broker's id and its
    current broker epoch.
    """

    async def allocate() -> ProducerIdBlock:
        broker_id, broker_epoch = registration()
        try:
            response = await controller.call(
                "AllocateProducerIds",
                write_allocate_producer_ids(broker_id, broker_epoch),
                ALLOCATE_TIMEOUT_S,
            )
        except TidemarkError as failure:
            raise TidemarkError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {failure.message}"
            ) from failure
        block = read_producer_id_block(response)
        if isinstance(block, ErrorCode):
            raise TidemarkError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the controller gave no producer ids: {block.name}",
            )
        return block

    return ProducerIds(allocate)
