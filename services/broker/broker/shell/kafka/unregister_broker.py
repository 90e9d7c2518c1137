"""UnregisterBroker (64, KIP-631): relayed to the controller."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.metadata_wire import read_position
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.cluster.controller_relay import (
    ALTER_CONFIGS_TIMEOUT_MS,
    ControllerRelay,
    caller_of,
)
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import Relayed, write_caller


class Unregistration(NamedTuple):
    """Outcome of the request."""

    error_code: ErrorCode
    message: str | None


async def handle(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Answer once this broker's own metadata lack the other broker."""
    if not facts.authorizer.authorize(context.requester, Operation.ALTER, CLUSTER):
        return _answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    message = pb.UnregisterBrokerRequest(
        caller=write_caller(caller_of(context)),
        broker_id=request.broker_id,
        timeout_ms=ALTER_CONFIGS_TIMEOUT_MS,
    )
    try:
        (outcome,), is_shown = await relay.change("UnregisterBroker", message, _read)
    except TidemarkError as failure:
        return _answer(failure.code, failure.message)
    if outcome.error_code is ErrorCode.NONE and not is_shown:
        words = "the broker is unregistered, but this broker's metadata did not show it in time"
        return _answer(ErrorCode.REQUEST_TIMED_OUT, words)
    return _answer(*outcome)


def _read(response: pb.UnregisterBrokerResponse) -> Relayed[Unregistration]:
    outcome = Unregistration(ErrorCode(response.error_code), response.error_message or None)
    return Relayed(ErrorCode.NONE, read_position(response.position), (outcome,))


def _answer(code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": int(code), "error_message": message}
