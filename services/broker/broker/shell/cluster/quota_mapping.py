"""Mapping between wire and model of changes of client quotas."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import QuotaEntity, QuotaValues
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.quotas_wire import write_entity
from tidemark_wire.v1 import controller_pb2

from broker.shell.wire_mapping import Caller, Relayed, write_caller


class QuotaAlteration(NamedTuple):
    """Quotas of one entity to set, and keys to remove."""

    entity: QuotaEntity
    values: QuotaValues
    removed: tuple[str, ...] = ()


class QuotaResult(NamedTuple):
    """Outcome of one entry of a change of quotas."""

    error_code: ErrorCode
    error_message: str | None = None


def write_alter_quotas(
    caller: Caller, entries: Sequence[QuotaAlteration], *, validate_only: bool, timeout_ms: int
) -> controller_pb2.AlterQuotasRequest:
    """Return AlterQuotas for the controller."""
    wire = controller_pb2.AlterQuotasRequest
    return wire(
        caller=write_caller(caller),
        entries=[
            wire.Entry(entity=write_entity(one.entity), values=one.values, removed=one.removed)
            for one in entries
        ],
        validate_only=validate_only,
        timeout_ms=timeout_ms,
    )


def read_quota_results(response: controller_pb2.AlterQuotasResponse) -> Relayed[QuotaResult]:
    """Read the controller's answer to a change of quotas."""
    return Relayed(
        ErrorCode(response.error_code),
        read_position(response.position),
        tuple(
            QuotaResult(ErrorCode(one.error_code), one.error_message or None)
            for one in response.results
        ),
    )
