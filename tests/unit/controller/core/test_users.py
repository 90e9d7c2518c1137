import pytest
from controller.core import users
from controller.core.cluster import Cluster
from controller.core.effects import UserResults
from controller.core.inputs import AlterUsers, CredentialRef, NewCredential, RequestHeader
from controller.core.users import decide_users
from tidemark.model.errors import ErrorCode
from tidemark.model.scram import ScramCredential, ScramMechanism, credential_from
from unit.controller.worlds import NEVER, a_cluster, applied

SHA_256, SHA_512 = ScramMechanism


def a_credential(mechanism: ScramMechanism = SHA_256, iterations: int = 8_192) -> ScramCredential:
    return credential_from(mechanism, b"salted", bytes(16), iterations)


def alter(cluster: Cluster, *parts: CredentialRef | NewCredential) -> list[tuple[str, ErrorCode]]:
    deletions = tuple(one for one in parts if isinstance(one, CredentialRef))
    upsertions = tuple(one for one in parts if isinstance(one, NewCredential))
    change, result = decide_users(
        cluster, AlterUsers(RequestHeader(1, NEVER), deletions, upsertions)
    )
    if change is not None:
        applied(cluster, change)
    assert isinstance(result, UserResults)
    return [(one.user, one.error) for one in result.users]


def test_credentials_are_set_replaced_and_removed_one_by_one() -> None:
    cluster, first, second = a_cluster(), a_credential(), a_credential(SHA_512)
    assert alter(cluster, NewCredential("alice", second)) == [("alice", ErrorCode.NONE)]
    alter(cluster, NewCredential("alice", first))
    assert cluster.image.users == {"alice": (first, second)}
    again = a_credential(iterations=4_096)
    alter(cluster, NewCredential("alice", again), CredentialRef("alice", SHA_512))
    assert cluster.image.users == {"alice": (again,)}
    alter(cluster, CredentialRef("alice", SHA_256))
    assert cluster.image.users == {}


def test_what_changes_nothing_is_not_written() -> None:
    cluster = a_cluster()
    alter(cluster, NewCredential("alice", a_credential()))
    before = cluster.image.position
    assert alter(cluster, NewCredential("alice", a_credential())) == [("alice", ErrorCode.NONE)]
    assert cluster.image.position == before


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (CredentialRef("bob", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (CredentialRef("bob", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (NewCredential("bob", None), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (NewCredential("", a_credential()), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (NewCredential("bob", a_credential(iterations=1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_one_user_may_not_does_not_concern_another(
    part: CredentialRef | NewCredential, error: ErrorCode
) -> None:
    cluster = a_cluster()
    results = alter(cluster, part, NewCredential("alice", a_credential()))
    assert dict(results) == {part.user: error, "alice": ErrorCode.NONE}
    assert cluster.image.users.keys() == {"alice"}


def test_a_credential_is_altered_once_in_a_request() -> None:
    cluster = a_cluster()
    twice = (NewCredential("alice", a_credential()), CredentialRef("alice", SHA_256))
    assert alter(cluster, *twice) == [("alice", ErrorCode.DUPLICATE_RESOURCE)]
    assert cluster.image.users == {}


def test_users_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "USERS_MAX", 1)
    cluster, credential = a_cluster(), a_credential()
    results = alter(cluster, NewCredential("a", credential), NewCredential("b", credential))
    assert results == [("a", ErrorCode.NONE), ("b", ErrorCode.UNACCEPTABLE_CREDENTIAL)]
    assert alter(cluster, NewCredential("a", a_credential(SHA_512))) == [("a", ErrorCode.NONE)]
