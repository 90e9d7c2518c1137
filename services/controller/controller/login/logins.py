"""RestLogins: principals of callers of REST and the console, by password, token, certificate or
session.

Passwords are those of SCRAM, tokens those of SASL/OAUTHBEARER, certificates are mapped as on
Kafka's listeners: one principal, whichever door.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tidemark.model.authorization import ANONYMOUS
from tidemark.model.metadata import ClusterImage
from tidemark.model.scram import UserCredentials
from tidemark.protocol.audit import Login, NoteLogin, no_note
from tidemark.protocol.bearer_tokens import BearerError
from tidemark.protocol.principal_mapping import NoPrincipalError, PrincipalMapper
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.certificates import principal_of
from tidemark.runtime.access.key_set import KeySetCache, fetch_from
from tidemark.runtime.access.password_checks import PasswordChecks, WrongPasswordError
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics, TallyFamily
from tidemark.runtime.telemetry import fields

from controller.core import sessions
from controller.core.sessions import Session
from controller.login.buckets import Buckets
from controller.rest_security_config import BASIC, BEARER, MTLS, RestSecurityConfig

log = logging.getLogger(__name__)

_KNOWN_MAX: Final = 1_000
_CHECKS_PER_SECOND: Final = 20
"""Passwords and tokens of one address that are checked; a caller that is known costs none."""
_NAME_CHARS_LOGGED_MAX: Final = 64
_LISTENER: Final = "rest"
_CHALLENGES: Final = {
    BASIC: 'Basic realm="Tidemark", charset="UTF-8"',
    BEARER: 'Bearer realm="Tidemark"',
}


class RefusedLoginError(Exception):
    """The caller is not who it claims to be. The text is for the log, never for the caller."""

    def __init__(self, mechanism: str, reason: str, claimed: str = "") -> None:
        super().__init__(reason)
        self.mechanism = mechanism
        self.claimed = claimed


class TooManyLoginsError(Exception):
    """The address sends more logins than are checked."""


def failed_logins(metrics: Metrics) -> TallyFamily:
    """Register the counter of refused logins."""
    return metrics.counter(
        "tidemark_rest_logins_failed",
        "logins to REST and the console that were refused, by mechanism",
        ("mechanism",),
    )


class RestLogins:
    """Logins of one controller."""

    def __init__(
        self,
        config: RestSecurityConfig,
        image: Callable[[], ClusterImage],
        clock: Clock,
        metrics: Metrics,
        note_login: NoteLogin = no_note,
    ) -> None:
        self._note_login = note_login
        self.mechanisms = config.rest_authentication_mechanisms
        self.has_tls = config.rest_tls is not None
        self.delay_s = config.rest_failed_authentication_delay_ms / 1_000
        self.session_ms = config.rest_session_ms
        self._image = image
        self._clock = clock
        self._mapper = PrincipalMapper(config.rest_ssl_principal_mapping_rules)
        self._passwords = PasswordChecks(lambda: (image().users, image().login_secret))
        self._known = KnownPasswords()
        self._attempts = Buckets(_CHECKS_PER_SECOND)
        self._tokens: BearerCheck | None = None
        if BEARER in self.mechanisms:
            keys = KeySetCache(config, clock, fetch_from(config))
            self._tokens = BearerCheck(keys, config.token_rules, clock)
        self._failed = failed_logins(metrics)

    @property
    def required(self) -> bool:
        """True if callers have to prove who they are."""
        return bool(self.mechanisms)

    @property
    def challenges(self) -> list[str]:
        """Values of WWW-Authenticate."""
        return [_CHALLENGES[one] for one in self.mechanisms if one in _CHALLENGES]

    # -- the caller of a request

    async def of_header(self, header: str, host: str) -> str:
        """Return the principal of an Authorization header. Raises RefusedLoginError,
        TooManyLoginsError.
        """
        scheme, _, value = header.partition(" ")
        mechanism = scheme.lower()
        if mechanism not in (BASIC, BEARER) or mechanism not in self.mechanisms:
            raise RefusedLoginError("other", "the scheme is not enabled")
        if mechanism == BASIC:
            user, password = _credentials(value.strip())
            await self.check_password(user, password, host)
            return f"User:{user}"
        assert self._tokens is not None, "made for this mechanism"
        self._count_attempt(host)
        try:
            found, _ = await self._tokens.check(value.strip())
        except BearerError as problem:
            raise RefusedLoginError(BEARER, str(problem)) from None
        self._note_success(found.user, BEARER, host)
        return f"User:{found.user}"

    def of_certificate(self, connection: ssl.SSLObject | None) -> str | None:
        """Return the principal of a caller's certificate; None without one. Raises
        RefusedLoginError.
        """
        if MTLS not in self.mechanisms:
            return None
        try:
            principal = principal_of(connection, self._mapper)
        except NoPrincipalError as problem:
            raise RefusedLoginError(MTLS, str(problem)) from None
        return None if principal == ANONYMOUS else principal

    async def check_password(self, user: str, password: str, host: str) -> None:
        """Return if the password is the user's. Raises RefusedLoginError, TooManyLoginsError."""
        credentials = self._image().users.get(user, ())
        if self._known.has(user, password, credentials):
            self._note_success(user, BASIC, host)
            return
        self._count_attempt(host)
        try:
            await self._passwords.check(user, password)
        except WrongPasswordError as problem:
            raise RefusedLoginError(BASIC, str(problem), user) from None
        self._known.add(user, password, credentials)
        self._note_success(user, BASIC, host)

    def _note_success(self, user: str, mechanism: str, host: str) -> None:
        if not self._note_login(Login(user, host, _LISTENER, mechanism, succeeded=True)):
            raise RefusedLoginError(mechanism, "the audit log is full", user)

    def _count_attempt(self, host: str) -> None:
        if not self._attempts.take(host, self._clock.now_ms()):
            raise TooManyLoginsError(f"{host} sends more logins than are checked")

    def count_failure(self, refusal: RefusedLoginError, host: str) -> None:
        """Count and log a refused login."""
        self._failed.at(refusal.mechanism).value += 1
        failed = Login(refusal.claimed, host, _LISTENER, refusal.mechanism, succeeded=False)
        self._note_login(failed._replace(reason=str(refusal)))
        log.warning(
            "login failed",
            extra=fields(
                listener=_LISTENER,
                peer=host,
                user=ascii(refusal.claimed[:_NAME_CHARS_LOGGED_MAX]),
                mechanism=refusal.mechanism,
                reason=str(refusal),
            ),
        )

    # -- sessions of the console

    @property
    def cookie_name(self) -> str:
        """Name of the session's cookie. With TLS browsers take it from this origin alone."""
        return "__Host-tidemark" if self.has_tls else "tidemark"

    def new_cookie(self, user: str) -> str:
        """Return the cookie of a user that has logged in. Raises RefusedLoginError if the user has
        been removed since.
        """
        session = Session(user, self._clock.wall_ms() + self.session_ms)
        present = self._fingerprint(user)
        if present is None:
            raise RefusedLoginError(BASIC, "the user was removed", user)
        return sessions.make_cookie(self._secret, session, present)

    def of_cookie(self, cookie: str) -> str | None:
        """Return the principal of a session; None if it is over."""
        found = sessions.read_cookie(self._secret, cookie, self._clock.wall_ms(), self._fingerprint)
        return None if found is None else f"User:{found.user}"

    def form_token(self, session: str) -> str:
        """Return the token of the forms of a session."""
        return sessions.form_token(self._secret, session)

    def is_form_token(self, session: str, token: str) -> bool:
        """Return True if it is the token of the forms of a session."""
        return sessions.is_form_token(self._secret, session, token)

    @property
    def _secret(self) -> bytes:
        return self._image().login_secret

    def _fingerprint(self, user: str) -> bytes | None:
        return sessions.fingerprint(self._image().users.get(user, ()))


class KnownPasswords:
    """Passwords that have fitted, as keyed hashes: to check one costs milliseconds, and callers of
    REST send theirs with every request. Those unused for longest are forgotten first.
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
        text = f"{len(user)}:{user}{password}".encode(errors="surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)


def _credentials(text: str) -> tuple[str, str]:
    """Return user and password of HTTP Basic (RFC 7617). Raises RefusedLoginError."""
    try:
        plain = base64.b64decode(text, validate=True).decode()
    except (ValueError, binascii.Error):
        raise RefusedLoginError(BASIC, "the credentials are not base64 of UTF-8") from None
    user, colon, password = plain.partition(":")
    if not colon or not user or not password:
        raise RefusedLoginError(BASIC, "the credentials have no user or no password")
    return user, password
