"""Common parts of the handlers of transactional APIs: authorization, and errors of older
versions.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import Producer


def may(
    facts: BrokerFacts, context: RequestContext, operation: Operation, transactional_id: str
) -> bool:
    """True if the caller may do this to the transactional id."""
    resource = transactional_id_resource(transactional_id)
    return facts.authorizer.authorize(context.requester, operation, resource)


def refuse_unless_writer(
    facts: BrokerFacts, context: RequestContext, transactional_id: str
) -> None:
    """Raises TidemarkError if the caller may not write in the id's transactions."""
    if not may(facts, context, Operation.WRITE, transactional_id):
        raise TidemarkError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Authorization failed."
        )


def producer_of(request: Struct) -> Producer:
    """Return the producer that a request names."""
    return Producer(request.transactional_id, request.producer_id, request.producer_epoch)


def error_for_version(client_version: int, code: ErrorCode, fenced_known_from: int) -> ErrorCode:
    """Return the code for this version of the API: PRODUCER_FENCED was added late (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and client_version < fenced_known_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
