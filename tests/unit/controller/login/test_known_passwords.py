"""KnownPasswords: a password that has fitted is taken again while the credentials are the same."""

import pytest
from controller.login.logins import KnownPasswords
from tidemark.model.scram import ScramMechanism, credential_from

pytestmark = pytest.mark.feature("SE11")

KEPT = (credential_from(ScramMechanism.SCRAM_SHA_256, b"one", b"salt" * 4, 4_096),)
OTHER = (credential_from(ScramMechanism.SCRAM_SHA_256, b"two", b"salt" * 4, 4_096),)


def test_it_knows_what_has_fitted_and_nothing_else() -> None:
    known = KnownPasswords()
    known.add("alice", "pencil", KEPT)
    assert known.has("alice", "pencil", KEPT)
    assert not known.has("alice", "pen", KEPT)
    assert not known.has("alicep", "encil", KEPT)


def test_new_credentials_and_a_removed_user_are_not_known() -> None:
    known = KnownPasswords()
    known.add("alice", "pencil", KEPT)
    assert not known.has("alice", "pencil", OTHER)
    assert not known.has("alice", "pencil", ())


def test_those_unused_for_longest_are_forgotten() -> None:
    known = KnownPasswords()
    for number in range(1_001):
        known.add(f"user-{number}", "pencil", KEPT)
    assert not known.has("user-0", "pencil", KEPT)
    assert known.has("user-1000", "pencil", KEPT)
