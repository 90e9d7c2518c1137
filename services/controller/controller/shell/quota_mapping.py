"""Conversion of requests and responses about client quotas, to and from protobuf."""

from collections.abc import Callable

from tidemark.runtime.metadata_wire import write_position
from tidemark.runtime.quotas_wire import read_entity
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import QuotaResults, Reply
from controller.core.inputs import AlterQuotas, QuotaAlteration, RequestHeader


def read_quota_changes(request: pb.AlterQuotasRequest) -> Callable[[RequestHeader], AlterQuotas]:
    """Quotas to set and to remove."""
    entries = tuple(
        QuotaAlteration(read_entity(one.entity), dict(one.values), tuple(one.removed))
        for one in request.entries
    )
    validate_only = request.validate_only
    return lambda header: AlterQuotas(header, entries, validate_only)


def write_altered_quotas(reply: Reply, hint: str) -> pb.AlterQuotasResponse:
    """Response of AlterQuotas."""
    entries = reply.result.entries if isinstance(reply.result, QuotaResults) else ()
    return pb.AlterQuotasResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        results=[
            pb.AlterQuotasResponse.Result(error_code=one.error, error_message=one.message)
            for one in entries
        ],
    )
