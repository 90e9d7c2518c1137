"""Logins by header: what is refused, what is known, and for how long."""

import asyncio
import base64
from typing import cast

import pytest
from manual_clock import ManualClock
from tidemark.model.scram import ScramMechanism, credential_from, salted_password
from tidemark.protocol.audit import Login
from tidemark.protocol.bearer_tokens import BearerError, VerifiedToken
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.header_logins import (
    BASIC,
    BEARER,
    TOKEN_KNOWN_MS,
    HeaderLogin,
    HeaderLogins,
    KnownPasswords,
    RefusedLoginError,
    TooManyLoginsError,
)

pytestmark = pytest.mark.feature("SE11")

KEPT = (credential_from(ScramMechanism.SCRAM_SHA_256, b"one", b"salt" * 4, 4_096),)
OTHER = (credential_from(ScramMechanism.SCRAM_SHA_256, b"two", b"salt" * 4, 4_096),)

SALT = b"salt" * 4
SALTED = salted_password(ScramMechanism.SCRAM_SHA_256, "pencil", SALT, 4_096)
PENCIL = (credential_from(ScramMechanism.SCRAM_SHA_256, SALTED, SALT, 4_096),)


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


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class ScriptedTokens:
    """A key set: the tokens that are valid, and how often one was checked."""

    def __init__(self) -> None:
        self.valid: dict[str, VerifiedToken] = {}
        self.checked = 0

    async def check(self, token: str) -> tuple[VerifiedToken, int]:
        self.checked += 1
        if token not in self.valid:
            raise BearerError("the signature does not fit")
        return self.valid[token], 1


class Door:
    """Logins of one listener, with one user, and what they note."""

    def __init__(self, schemes: tuple[str, ...] = (BASIC, BEARER)) -> None:
        self.clock = ManualClock()
        self.tokens = ScriptedTokens()
        self.noted: list[Login] = []
        self.has_room = True
        self.users = {"alice": PENCIL}
        self.logins = HeaderLogins(
            "GRPC",
            schemes,
            lambda: (self.users, b"secret"),
            cast("BearerCheck", self.tokens),
            self.clock,
            self.note,
        )

    def log_in(self, header: str, host: str) -> HeaderLogin:
        return asyncio.run(self.logins.of_header(header, host))

    def note(self, login: Login) -> bool:
        self.noted.append(login)
        return self.has_room


def test_a_password_that_fits_is_the_users() -> None:
    door = Door()
    assert door.log_in(basic("alice", "pencil"), "h") == HeaderLogin("alice", BASIC)
    assert door.noted == [Login("alice", "h", "GRPC", BASIC, succeeded=True)]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "not enabled"),
        ("Digest x", "not enabled"),
        ("Basic", "no user or no password"),
        ("Basic !!!!", "not base64"),
        (f"Basic {base64.b64encode(b'alice').decode()}", "no user or no password"),
        (basic("", "pencil"), "no user or no password"),
        (basic("alice", ""), "no user or no password"),
        (basic("alice", "pencil\0"), "control characters"),
        (basic("alice", "pen"), "does not fit, or there is no such user"),
        (basic("bob", "pencil"), "does not fit, or there is no such user"),
        ("Bearer forged", "signature"),
    ],
)
def test_what_proves_nothing_is_refused(header: str, words: str) -> None:
    with pytest.raises(RefusedLoginError, match=words):
        Door().log_in(header, "h")


def test_a_scheme_that_is_not_enabled_is_refused_even_if_it_would_fit() -> None:
    with pytest.raises(RefusedLoginError, match="not enabled"):
        Door((BEARER,)).log_in(basic("alice", "pencil"), "h")


def test_a_new_password_ends_the_old_one() -> None:
    door = Door()
    door.log_in(basic("alice", "pencil"), "h")
    door.users["alice"] = OTHER
    with pytest.raises(RefusedLoginError):
        door.log_in(basic("alice", "pencil"), "h")
    del door.users["alice"]
    with pytest.raises(RefusedLoginError):
        door.log_in(basic("alice", "two"), "h")


def test_a_token_is_checked_again_after_a_while_and_never_after_its_end() -> None:
    door = Door()
    now_s = door.clock.wall_ms() / 1_000
    lives_s = TOKEN_KNOWN_MS / 1_000 * 3
    door.tokens.valid = {"t": VerifiedToken("alice", now_s + lives_s)}
    found = HeaderLogin("alice", BEARER, int((now_s + lives_s) * 1_000))
    for _ in range(3):
        assert door.log_in("Bearer t", "h") == found
    assert door.tokens.checked == 1
    door.clock.advance(TOKEN_KNOWN_MS)
    assert door.log_in("bearer t", "h") == found
    assert door.tokens.checked == 2
    door.tokens.valid.clear()
    assert door.log_in("Bearer t", "h") == found
    door.clock.advance(TOKEN_KNOWN_MS)
    with pytest.raises(RefusedLoginError):
        door.log_in("Bearer t", "h")


def test_a_token_that_ends_sooner_is_known_no_longer_than_it_lives() -> None:
    door = Door()
    door.tokens.valid = {"t": VerifiedToken("alice", door.clock.wall_ms() / 1_000 + 1)}
    door.log_in("Bearer t", "h")
    door.tokens.valid.clear()
    door.clock.advance(1_000)
    with pytest.raises(RefusedLoginError):
        door.log_in("Bearer t", "h")


def test_an_address_has_a_rate_of_guesses_and_known_callers_cost_none() -> None:
    door = Door()
    door.log_in(basic("alice", "pencil"), "h")
    for number in range(19):
        with pytest.raises(RefusedLoginError):
            door.log_in(f"Bearer {number}", "h")
    with pytest.raises(TooManyLoginsError):
        door.log_in("Bearer one-more", "h")
    assert (door.log_in(basic("alice", "pencil"), "h")).user == "alice"
    with pytest.raises(RefusedLoginError):
        door.log_in("Bearer one-more", "another host")


def test_nobody_gets_in_whose_login_cannot_be_written_down() -> None:
    door = Door()
    door.has_room = False
    with pytest.raises(RefusedLoginError, match="audit log is full"):
        door.log_in(basic("alice", "pencil"), "h")
