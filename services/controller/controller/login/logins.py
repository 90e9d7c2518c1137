"""RestLogins: principals of callers of REST and the console, by password, token, certificate or
session.

Passwords are those of SCRAM, tokens those of SASL/OAUTHBEARER, certificates are mapped as on
Kafka's listeners: one principal, whichever door.
"""

import ssl
from collections.abc import Callable
from typing import Final

from tidemark.model.authorization import ANONYMOUS
from tidemark.model.metadata import ClusterImage
from tidemark.protocol.audit import NoteLogin, no_note
from tidemark.protocol.principal_mapping import NoPrincipalError, PrincipalMapper
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.certificates import principal_of
from tidemark.runtime.access.header_logins import (
    BASIC,
    BEARER,
    SCHEMES,
    HeaderLogins,
    RefusedLoginError,
)
from tidemark.runtime.access.key_set import KeySetCache, fetch_from
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics, TallyFamily

from controller.core import sessions
from controller.core.sessions import Session
from controller.rest_security_config import MTLS, RestSecurityConfig

_LISTENER: Final = "rest"
_CHALLENGES: Final = {
    BASIC: 'Basic realm="Tidemark", charset="UTF-8"',
    BEARER: 'Bearer realm="Tidemark"',
}


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
        self.mechanisms = config.rest_authentication_mechanisms
        self.has_tls = config.rest_tls is not None
        self.delay_s = config.rest_failed_authentication_delay_ms / 1_000
        self.session_ms = config.rest_session_ms
        self._image = image
        self._clock = clock
        self._mapper = PrincipalMapper(config.rest_ssl_principal_mapping_rules)
        self._of_headers = HeaderLogins(
            _LISTENER,
            tuple(one for one in SCHEMES if one in self.mechanisms),
            lambda: (image().users, image().login_secret),
            _token_check(config, clock),
            clock,
            note_login,
        )
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
        return f"User:{(await self._of_headers.of_header(header, host)).user}"

    def of_certificate(self, connection: ssl.SSLObject | None, host: str) -> str | None:
        """Return the principal of a caller's certificate; None without one. Raises
        RefusedLoginError.
        """
        if MTLS not in self.mechanisms:
            return None
        try:
            principal = principal_of(connection, self._mapper)
        except NoPrincipalError as problem:
            raise RefusedLoginError(MTLS, str(problem)) from None
        if principal == ANONYMOUS:
            return None
        self._of_headers.note_success(principal.removeprefix("User:"), MTLS, host)
        return principal

    async def check_password(self, user: str, password: str, host: str) -> None:
        """Return if the password is the user's. Raises RefusedLoginError, TooManyLoginsError."""
        await self._of_headers.check_password(user, password, host)

    def count_failure(self, refusal: RefusedLoginError, host: str) -> None:
        """Count and log a refused login."""
        self._failed.at(refusal.mechanism).value += 1
        self._of_headers.note_failure(refusal, host)

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


def _token_check(config: RestSecurityConfig, clock: Clock) -> BearerCheck | None:
    if BEARER not in config.rest_authentication_mechanisms:
        return None
    keys = KeySetCache(config, clock, fetch_from(config))
    return BearerCheck(keys, config.token_rules, clock)
