"""Conversion of requests and responses about access control lists, to and from protobuf."""

from collections.abc import Callable

from tidemark.runtime.acl_wire import read_filter, read_raw_binding, write_binding
from tidemark.runtime.metadata_wire import write_position
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import AclResult, AclResults, Reply
from controller.core.inputs import CreateAcls, DeleteAcls, RequestHeader


def read_new_acls(request: pb.CreateAclsRequest) -> Callable[[RequestHeader], CreateAcls]:
    """Bindings to create."""
    bindings = tuple(map(read_raw_binding, request.bindings))
    return lambda header: CreateAcls(header, bindings)


def read_acl_filters(request: pb.DeleteAclsRequest) -> Callable[[RequestHeader], DeleteAcls]:
    """Filters that select the bindings to delete."""
    filters = tuple(map(read_filter, request.filters))
    return lambda header: DeleteAcls(header, filters)


def write_created_acls(reply: Reply, hint: str) -> pb.CreateAclsResponse:
    """Response of CreateAcls."""
    return pb.CreateAclsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        results=[
            pb.CreateAclsResponse.Result(error_code=one.error, error_message=one.message)
            for one in _results(reply)
        ],
    )


def write_deleted_acls(reply: Reply, hint: str) -> pb.DeleteAclsResponse:
    """Response of DeleteAcls."""
    return pb.DeleteAclsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        results=[
            pb.DeleteAclsResponse.Result(
                error_code=one.error,
                error_message=one.message,
                deleted=map(write_binding, one.deleted),
            )
            for one in _results(reply)
        ],
    )


def _results(reply: Reply) -> tuple[AclResult, ...]:
    return reply.result.results if isinstance(reply.result, AclResults) else ()
