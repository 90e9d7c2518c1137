"""Decisions on users' SCRAM credentials (KIP-554). Each user succeeds or fails as a whole."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterDelta
from tidemark.model.scram import (
    ScramMechanism,
    UserCredentials,
    check_strength,
    check_user_name,
)

from controller.core.cluster import Change, Cluster
from controller.core.effects import UserResult, UserResults
from controller.core.inputs import AlterUsers, CredentialRef, NewCredential

USERS_MAX: Final = 10_000
"""Number of users that may have credentials. All of them are part of every snapshot."""

_KNOWN: Final = {int(one) for one in ScramMechanism}


def decide_users(cluster: Cluster, request: AlterUsers) -> tuple[Change | None, UserResults]:
    """Return the change of credentials, if any, and a result for each user, in order."""
    present = cluster.image.users
    twice = _named_twice(request)
    changed: dict[str, UserCredentials] = {}
    results = []
    named = [one.user for one in request.deletions] + [one.user for one in request.upsertions]
    for user in dict.fromkeys(named):
        try:
            if user in twice:
                raise TidemarkError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            check_user_name(user)
            _check_count(present, changed, user)
            changed[user] = _after(
                present.get(user, ()),
                [one for one in request.deletions if one.user == user],
                [one for one in request.upsertions if one.user == user],
            )
        except TidemarkError as refused:
            results.append(UserResult(user, refused.code, refused.message))
        else:
            results.append(UserResult(user))
    made = {user: after for user, after in changed.items() if after != present.get(user, ())}
    change = Change(ClusterDelta(users_changed=made)) if made else None
    return change, UserResults(tuple(results))


def _named_twice(request: AlterUsers) -> set[str]:
    """Return the users of whom one credential is named more than once."""
    named = Counter((one.user, one.mechanism) for one in request.deletions)
    named.update(
        (one.user, int(one.credential.mechanism)) for one in request.upsertions if one.credential
    )
    return {user for (user, _), count in named.items() if count > 1}


def _check_count(
    present: Mapping[str, UserCredentials], changed: Mapping[str, UserCredentials], user: str
) -> None:
    if user not in present and len(present) + len(changed) >= USERS_MAX:
        raise TidemarkError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"At most {USERS_MAX} users may have credentials."
        )


def _after(
    present: UserCredentials,
    deletions: Iterable[CredentialRef],
    upsertions: Iterable[NewCredential],
) -> UserCredentials:
    """Return a user's credentials after the alterations. Raises TidemarkError."""
    after = {int(one.mechanism): one for one in present}
    for deletion in deletions:
        _check_mechanism(deletion.mechanism)
        if after.pop(deletion.mechanism, None) is None:
            raise TidemarkError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    for one in upsertions:
        if one.credential is None:
            raise _unknown_mechanism()
        check_strength(one.credential.iterations, one.credential.salt)
        after[int(one.credential.mechanism)] = one.credential
    return tuple(after[number] for number in sorted(after))


def _check_mechanism(number: int) -> None:
    if number not in _KNOWN:
        raise _unknown_mechanism()


def _unknown_mechanism() -> TidemarkError:
    return TidemarkError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
