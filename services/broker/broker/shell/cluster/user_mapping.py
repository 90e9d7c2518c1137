"""Mapping between wire and model of changes of users' credentials."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.scram import ScramCredential
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.users_wire import write_credential
from tidemark_wire.v1 import controller_pb2

from broker.shell.wire_mapping import Caller, Relayed, write_caller


class CredentialDeletion(NamedTuple):
    """Credential to remove; ``mechanism`` is Kafka's number, known or not."""

    user: str
    mechanism: int


class CredentialUpsertion(NamedTuple):
    """Credential to set."""

    user: str
    credential: ScramCredential


class UserResult(NamedTuple):
    """Outcome of one user of a change of credentials."""

    user: str
    error_code: ErrorCode
    error_message: str | None = None


def write_alter_users(
    caller: Caller,
    deletions: Sequence[CredentialDeletion],
    upsertions: Sequence[CredentialUpsertion],
    *,
    timeout_ms: int,
) -> controller_pb2.AlterUsersRequest:
    """Return AlterUsers for the controller."""
    wire = controller_pb2.AlterUsersRequest
    return wire(
        caller=write_caller(caller),
        deletions=[wire.Deletion(user=one.user, mechanism=one.mechanism) for one in deletions],
        upsertions=[
            wire.Upsertion(user=one.user, credential=write_credential(one.credential))
            for one in upsertions
        ],
        timeout_ms=timeout_ms,
    )


def read_user_results(response: controller_pb2.AlterUsersResponse) -> Relayed[UserResult]:
    """Read the controller's answer to a change of credentials."""
    return Relayed(
        ErrorCode(response.error_code),
        read_position(response.position),
        tuple(
            UserResult(one.user, ErrorCode(one.error_code), one.error_message or None)
            for one in response.results
        ),
    )
