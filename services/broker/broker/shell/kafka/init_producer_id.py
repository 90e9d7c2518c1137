"""InitProducerId (22): a producer id for an idempotent producer (KIP-98). No transactions yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_PRODUCER

from broker.core.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from broker.shell.node import BrokerNode
    from broker.shell.request_router import RequestContext

NO_PRODUCER_EPOCH: Final = -1
FIRST_PRODUCER_EPOCH: Final = 0

TRANSACTIONAL_REFUSAL: Final = ErrorCode.UNSUPPORTED_VERSION
"""What a transactional id is told while there are no transactions. A coordinator error would be
retried for ever; this one every client treats as final, and says that the broker does not have what
was asked for.
"""


async def handle(node: BrokerNode, request: Struct, context: RequestContext) -> dict[str, object]:
    """A new id with epoch 0. What id the producer had before does not matter without a
    transactional id.
    """
    refused = _refusal(node, request, context)
    if refused is not None:
        return _answer(refused)
    try:
        producer_id = await node.producer_ids.next()
    except TidemarkError as failure:
        return _answer(failure.code)
    return _answer(ErrorCode.NONE, producer_id, FIRST_PRODUCER_EPOCH)


def _refusal(node: BrokerNode, request: Struct, context: RequestContext) -> ErrorCode | None:
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST  # both or neither (KIP-360)
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        return TRANSACTIONAL_REFUSAL
    if not node.authorizer.authorize(context.principal, Operation.IDEMPOTENT_WRITE, CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


def _answer(
    error_code: ErrorCode,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> dict[str, object]:
    return {
        "error_code": int(error_code),
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


HANDLED: Final = ((ApiKey.INIT_PRODUCER_ID, handle),)
