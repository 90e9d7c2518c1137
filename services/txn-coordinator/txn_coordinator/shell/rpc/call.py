"""Steps that RPCs of transactions share: authorization, and an unused producer id."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ProducerId
from tidemark.runtime.coordinator.calls import ask

from txn_coordinator.core.requests import Request
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.wire_mapping import FromCaller, read_requester


class WithProducerId(Protocol):
    """Reply that may give a producer id."""

    @property
    def producer_id(self) -> int:
        """Producer id that is given; -1: none."""
        ...


GivingT = TypeVar("GivingT", bound=WithProducerId)


def check_allowed(
    node: TxnCoordinatorNode, request: FromCaller, operation: Operation, transactional_id: str
) -> None:
    """Raise TidemarkError for a caller that is not allowed."""
    requester = read_requester(request)
    resource = transactional_id_resource(transactional_id)
    if not node.authorizer.authorize(requester, operation, resource):
        raise TidemarkError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{requester.principal} may not {operation.name} {transactional_id}",
        )


async def ask_with_spare(
    node: TxnCoordinatorNode,
    transactional_id: str,
    make: Callable[[int], Request],
    kind: type[GivingT],
    context: Any,
) -> GivingT:
    """Return the reply as ``ask``, with an unused producer id that the shard may take. If it is not
    taken, it serves another request. Without a reply it counts as taken.
    """
    node.shards.check(node.shards.shard_of(transactional_id))
    spare: ProducerId = await node.producer_ids.next()
    reply = await ask(node, transactional_id, make(spare), kind, context)
    if reply.producer_id != spare:
        node.producer_ids.give_back(spare)
    return reply
