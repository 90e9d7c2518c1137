"""Mapping between wire and model of changes of access control lists."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemark.model.acls import AclBinding, AclFilter, RawBinding
from tidemark.model.errors import ErrorCode
from tidemark.runtime.acl_wire import read_binding, write_filter, write_raw_binding
from tidemark.runtime.metadata_wire import read_position
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.wire_mapping import Caller, Relayed, write_caller


class AclResult(NamedTuple):
    """Outcome of one binding to create, or of one filter with the bindings that it deleted."""

    error_code: ErrorCode
    error_message: str | None = None
    deleted: tuple[AclBinding, ...] = ()


def write_create_acls(
    caller: Caller, bindings: Sequence[RawBinding], *, timeout_ms: int
) -> pb.CreateAclsRequest:
    """Return CreateAcls for the controller."""
    return pb.CreateAclsRequest(
        caller=write_caller(caller),
        bindings=map(write_raw_binding, bindings),
        timeout_ms=timeout_ms,
    )


def write_delete_acls(
    caller: Caller, filters: Sequence[AclFilter], *, timeout_ms: int
) -> pb.DeleteAclsRequest:
    """Return DeleteAcls for the controller."""
    return pb.DeleteAclsRequest(
        caller=write_caller(caller), filters=map(write_filter, filters), timeout_ms=timeout_ms
    )


def read_created_acls(response: pb.CreateAclsResponse) -> Relayed[AclResult]:
    """Read the controller's answer to CreateAcls."""
    return Relayed(
        ErrorCode(response.error_code),
        read_position(response.position),
        tuple(
            AclResult(ErrorCode(one.error_code), one.error_message or None)
            for one in response.results
        ),
    )


def read_deleted_acls(response: pb.DeleteAclsResponse) -> Relayed[AclResult]:
    """Read the controller's answer to DeleteAcls."""
    return Relayed(
        ErrorCode(response.error_code),
        read_position(response.position),
        tuple(
            AclResult(
                ErrorCode(one.error_code),
                one.error_message or None,
                tuple(map(read_binding, one.deleted)),
            )
            for one in response.results
        ),
    )
