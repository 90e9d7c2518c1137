"""Caller of PartitionStore's streams."""

from typing import Any, NamedTuple

import grpc.aio
from tidemark.model.authorization import Requester
from tidemark.runtime.peers import PEER, host_of
from tidemark.runtime.telemetry import REQUEST_ID


class Caller(NamedTuple):
    """Client at the other end of a stream."""

    requester: Requester
    peer: str
    request_id: str


def caller_of(context: "grpc.aio.ServicerContext[Any, Any]") -> Caller:
    """Return the caller, from the RPC's context."""
    peer = context.peer()
    return Caller(Requester(PEER.get(), host_of(peer)), peer, REQUEST_ID.get())
