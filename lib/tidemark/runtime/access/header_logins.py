"""Logins by the header ``authorization`` of HTTP and gRPC: passwords (Basic, RFC 7617) and tokens
(Bearer, RFC 6750).

Passwords are those of SCRAM, tokens those of SASL/OAUTHBEARER. A caller sends its header with every
request, so what has been checked is known for a while, by a keyed hash.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import unicodedata
from collections import OrderedDict
from typing import Final, NamedTuple

from tidemark.model.scram import UserCredentials
from tidemark.protocol.audit import Login, NoteLogin
from tidemark.protocol.bearer_tokens import BearerError
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.buckets import Buckets
from tidemark.runtime.access.password_checks import PasswordChecks, Users, WrongPasswordError
from tidemark.runtime.clock import Clock
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

BASIC: Final = "basic"
BEARER: Final = "bearer"
SCHEMES: Final = (BASIC, BEARER)

TOKEN_KNOWN_MS: Final = 60_000
"""Time after which a token is checked again, as its key may have been withdrawn."""
_KNOWN_MAX: Final = 1_000
_CHECKS_PER_SECOND: Final = 20
"""Passwords and tokens of one address that are checked; one that is known costs none."""
_NAME_CHARS_LOGGED_MAX: Final = 64


class RefusedLoginError(Exception):
    """The caller is not who it claims to be. The text is for the log, never for the caller."""

    def __init__(self, mechanism: str, reason: str, claimed: str = "") -> None:
        super().__init__(reason)
        self.mechanism = mechanism
        self.claimed = claimed


class TooManyLoginsError(Exception):
    """The address sends more logins than are checked."""


class HeaderLogin(NamedTuple):
    """Caller with a valid header. ``ends_at_ms``: wall time at which its token expires; None for a
    password.
    """

    user: str
    mechanism: str
    ends_at_ms: int | None = None


class HeaderLogins:
    """Logins at one listener."""

    def __init__(
        self,
        listener: str,
        schemes: tuple[str, ...],
        users: Users,
        tokens: BearerCheck | None,
        clock: Clock,
        note_login: NoteLogin,
    ) -> None:
        """``schemes``: BASIC, BEARER; the latter needs ``tokens``."""
        assert BEARER not in schemes or tokens is not None, "nobody checks tokens"
        self._listener = listener
        self._schemes = schemes
        self._users = users
        self._clock = clock
        self._note_login = note_login
        self._passwords = PasswordChecks(users)
        self._known_passwords = KnownPasswords()
        self._tokens = tokens
        self._known_tokens = KnownTokens()
        self._attempts = Buckets(_CHECKS_PER_SECOND)

    async def of_header(self, header: str, host: str) -> HeaderLogin:
        """Return the caller with this header. Raises RefusedLoginError, TooManyLoginsError."""
        scheme, _, value = header.partition(" ")
        mechanism = scheme.lower()
        if mechanism not in self._schemes:
            raise RefusedLoginError("other", "the scheme is not enabled")
        if mechanism == BASIC:
            user, password = _credentials(value.strip())
            await self.check_password(user, password, host)
            return HeaderLogin(user, BASIC)
        return await self._of_token(value.strip(), host)

    async def check_password(self, user: str, password: str, host: str) -> None:
        """Return if the password is the user's. Raises RefusedLoginError, TooManyLoginsError."""
        credentials = self._users()[0].get(user, ())
        if not self._known_passwords.has(user, password, credentials):
            self._count_attempt(host)
            try:
                await self._passwords.check(user, password)
            except WrongPasswordError as problem:
                raise RefusedLoginError(BASIC, str(problem), user) from None
            self._known_passwords.add(user, password, credentials)
        self.note_success(user, BASIC, host)

    async def _of_token(self, token: str, host: str) -> HeaderLogin:
        now_ms = self._clock.wall_ms()
        found = self._known_tokens.find(token, now_ms)
        if found is None:
            assert self._tokens is not None, "made for this scheme"
            self._count_attempt(host)
            try:
                verified, _ = await self._tokens.check(token)
            except BearerError as problem:
                raise RefusedLoginError(BEARER, str(problem)) from None
            found = HeaderLogin(verified.user, BEARER, int(verified.expires_at_s * 1_000))
            self._known_tokens.add(token, found, now_ms)
        self.note_success(found.user, BEARER, host)
        return found

    def note_success(self, user: str, mechanism: str, host: str) -> None:
        """Note a login. Raises RefusedLoginError if it must be noted and cannot be."""
        if not self._note_login(Login(user, host, self._listener, mechanism, succeeded=True)):
            raise RefusedLoginError(mechanism, "the audit log is full", user)

    def note_failure(self, refusal: RefusedLoginError, host: str) -> None:
        """Note and log a refused login."""
        failed = Login(refusal.claimed, host, self._listener, refusal.mechanism, succeeded=False)
        self._note_login(failed._replace(reason=str(refusal)))
        log.warning(
            "login failed",
            extra=fields(
                listener=self._listener,
                peer=host,
                user=ascii(refusal.claimed[:_NAME_CHARS_LOGGED_MAX]),
                mechanism=refusal.mechanism,
                reason=str(refusal),
            ),
        )

    def _count_attempt(self, host: str) -> None:
        if not self._attempts.take(host, self._clock.now_ms()):
            raise TooManyLoginsError(f"{host} sends more logins than are checked")


class KnownPasswords:
    """Passwords that have fitted, as keyed hashes: to check one costs milliseconds. Those unused
    for longest are forgotten first.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, UserCredentials] = OrderedDict()

    def has(self, user: str, password: str, credentials: UserCredentials) -> bool:
        """Return True if the password has fitted, and the user's credentials are the same."""
        digest = self._digest(user, password)
        if not credentials or self._known.get(digest) != credentials:
            return False
        self._known.move_to_end(digest)
        return True

    def add(self, user: str, password: str, credentials: UserCredentials) -> None:
        """Note a password that fits."""
        self._known[self._digest(user, password)] = credentials
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def _digest(self, user: str, password: str) -> bytes:
        return _digest(self._key, f"{len(user)}:{user}{password}")


class KnownTokens:
    """Tokens that were valid less than TOKEN_KNOWN_MS ago, as keyed hashes."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, tuple[HeaderLogin, int]] = OrderedDict()

    def find(self, token: str, now_ms: int) -> HeaderLogin | None:
        """Return the caller of a token; None if it has to be checked. ``now_ms``: wall time."""
        digest = _digest(self._key, token)
        found, until_ms = self._known.get(digest, (None, 0))
        if found is not None and now_ms >= until_ms:
            del self._known[digest]
            return None
        return found

    def add(self, token: str, caller: HeaderLogin, now_ms: int) -> None:
        """Note a token that was found valid now."""
        assert caller.ends_at_ms is not None, "tokens expire"
        until_ms = min(now_ms + TOKEN_KNOWN_MS, caller.ends_at_ms)
        self._known[_digest(self._key, token)] = caller, until_ms
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)


def _digest(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(errors="surrogatepass"), hashlib.sha256)


def _credentials(text: str) -> tuple[str, str]:
    """Return user and password of HTTP Basic (RFC 7617). Raises RefusedLoginError."""
    try:
        plain = base64.b64decode(text, validate=True).decode()
    except (ValueError, binascii.Error):
        raise RefusedLoginError(BASIC, "the credentials are not base64 of UTF-8") from None
    user, colon, password = plain.partition(":")
    if not colon or not user or not password:
        raise RefusedLoginError(BASIC, "the credentials have no user or no password")
    if any(unicodedata.category(one) == "Cc" for one in plain):
        # PBKDF2 does not tell a password from one with zeros behind it.
        raise RefusedLoginError(BASIC, "the credentials have control characters")
    return user, password
