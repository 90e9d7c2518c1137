"""Wire to inputs and results to wire, of users' credentials."""

from collections.abc import Callable

from tidemark.runtime.metadata_wire import write_position
from tidemark.runtime.users_wire import read_credential
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply, UserResults
from controller.core.inputs import AlterUsers, CredentialRef, NewCredential, RequestHeader


def read_user_changes(request: pb.AlterUsersRequest) -> Callable[[RequestHeader], AlterUsers]:
    """Credentials to set and to remove."""
    deletions = tuple(CredentialRef(one.user, one.mechanism) for one in request.deletions)
    upsertions = tuple(
        NewCredential(one.user, read_credential(one.credential)) for one in request.upsertions
    )
    return lambda header: AlterUsers(header, deletions, upsertions)


def write_altered_users(reply: Reply, hint: str) -> pb.AlterUsersResponse:
    """Response of AlterUsers."""
    results = reply.result.users if isinstance(reply.result, UserResults) else ()
    return pb.AlterUsersResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        results=[
            pb.AlterUsersResponse.Result(
                user=one.user, error_code=one.error, error_message=one.message
            )
            for one in results
        ],
    )
