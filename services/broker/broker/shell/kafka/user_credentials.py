"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): users of SCRAM (KIP-554).

Changes are relayed to the controller. A description has mechanisms and iterations, never keys or
salts. A salted password ends here: the controller gets the keys that are made from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.scram import (
    SALTED_PASSWORD_BYTES_MAX,
    ScramMechanism,
    UserCredentials,
    check_strength,
    check_user_name,
    credential_from,
)
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.cluster.user_mapping import CredentialDeletion, CredentialUpsertion, UserResult
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

_KNOWN: Final = {int(one) for one in ScramMechanism}


async def describe(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Describe the users named, or all."""
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return {"error_code": int(code), "error_message": "Authorization failed.", "results": []}
    users = metadata.image.users
    named = [one.name for one in request.users or ()]
    times = Counter(named)
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "results": [_described(user, users, times[user]) for user in times or sorted(users)],
    }


def _described(user: str, users: Mapping[str, UserCredentials], times: int) -> dict[str, object]:
    code, message = ErrorCode.NONE, None
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif user not in users:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    shown = users.get(user, ()) if code is ErrorCode.NONE else ()
    return {
        "user": user,
        "error_code": int(code),
        "error_message": message,
        "credential_infos": [
            {"mechanism": int(one.mechanism), "iterations": one.iterations} for one in shown
        ],
    }


async def alter(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Set and remove credentials, and answer for each user once, in the order of the request."""
    named = [one.name for one in (*request.deletions, *request.upsertions)]
    answers = {user: UserResult(user, ErrorCode.NONE) for user in named}
    if not facts.authorizer.authorize(context.requester, Operation.ALTER, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _written({user: UserResult(user, code) for user in answers})
    upsertions = []
    for one in request.upsertions:
        try:
            upsertions.append(_upsertion(one))
        except TidemarkError as refused:
            answers[one.name] = UserResult(one.name, refused.code, refused.message)
    refused_users = {user for user, one in answers.items() if one.error_code is not ErrorCode.NONE}
    results = await relay.users(
        caller_of(context),
        [
            CredentialDeletion(one.name, one.mechanism)
            for one in request.deletions
            if one.name not in refused_users
        ],
        [one for one in upsertions if one.user not in refused_users],
    )
    answers.update({one.user: one for one in results})
    return _written(answers)


def _upsertion(wire: Struct) -> CredentialUpsertion:
    """Return a credential with its keys in place of the salted password. Raises TidemarkError."""
    check_user_name(wire.name)
    if wire.mechanism not in _KNOWN:
        raise TidemarkError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    check_strength(wire.iterations, wire.salt)
    if not 0 < len(wire.salted_password) <= SALTED_PASSWORD_BYTES_MAX:
        raise TidemarkError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salted password must have 1 to {SALTED_PASSWORD_BYTES_MAX} bytes",
        )
    credential = credential_from(
        ScramMechanism(wire.mechanism), wire.salted_password, wire.salt, wire.iterations
    )
    return CredentialUpsertion(wire.name, credential)


def _written(answers: Mapping[str, UserResult]) -> dict[str, object]:
    return {
        "results": [
            {
                "user": one.user,
                "error_code": int(one.error_code),
                "error_message": one.error_message,
            }
            for one in answers.values()
        ]
    }
