"""Login: authentication of one connection with SASL (KIP-43, KIP-152, KIP-368).

A connection sends ApiVersions and SaslHandshake, then tokens: in SaslAuthenticate requests after a
handshake of version 1, without any header after one of version 0. Nothing else is served before
the mechanism, an ``Exchange``, accepts. With a session lifetime, a client authenticates again on
the same connection before the session expires; user and mechanism stay the same.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

REPEATED_MIN_MS: Final = 1_000
"""Shortest time between two authentications of one connection, as in Kafka."""

_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
_AUTHENTICATE: Final = int(ApiKey.SASL_AUTHENTICATE)


class LoginFailedError(Exception):
    """The mechanism refuses the client. The text is for the log, never for the client."""


class Step(NamedTuple):
    """Answer of a mechanism to one token; ``user`` is set with the last one."""

    token: bytes
    user: str | None = None
    lifetime_ms: int = 0
    """Time for which the proof is valid; 0: without an end."""


class Later(NamedTuple):
    """Answer of a mechanism that takes long: ``work`` returns it, or raises LoginFailedError."""

    work: Callable[[], Awaitable[Step]]


class Exchange(Protocol):
    """One run of a mechanism."""

    def step(self, token: bytes) -> Step | Later:
        """Take a token of the client. Raises LoginFailedError."""

    @property
    def token_bytes_max(self) -> int:
        """Longest token. It is parsed on the event loop."""

    @property
    def claimed(self) -> str:
        """User that the client claims to be; '' while it has named none."""


class Verdict(Enum):
    """Outcome of the check of a request."""

    SERVE = auto()
    """Its own handler answers it."""
    LOGIN = auto()
    """It is a step of the login."""
    ILLEGAL = auto()
    """It may not be sent now: the connection ends, without an answer, as in Kafka."""
    EXPIRED = auto()
    """The session has expired: the connection ends."""


class Stage(Enum):
    """Progress of a login."""

    BEGUN = auto()
    TOKENS = auto()
    CHECKING = auto()
    OPEN = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class LoginRules:
    """Settings of a listener's logins. A lifetime of 0 is without an end."""

    mechanisms: tuple[str, ...]
    deadline_ms: int
    lifetime_ms: int
    begin: Callable[[str], Exchange]
    """Starts an exchange by the name of its mechanism."""


class HandshakeAnswer(NamedTuple):
    """Fields of the answer to a handshake."""

    error_code: ErrorCode
    mechanisms: Sequence[str]


class TokenAnswer(NamedTuple):
    """Fields of the answer to a token. ``reason`` is for the log."""

    error_code: ErrorCode
    message: str | None
    token: bytes
    lifetime_ms: int
    reason: str = ""


class Login:
    """Authentication of one connection."""

    __slots__ = (
        "_began_at", "_deadline_at", "_exchange", "_expires_at", "_mechanism", "_raw", "_rules",
        "repeated", "stage", "user",
    )  # fmt: skip

    def __init__(self, rules: LoginRules, now: InstantMs) -> None:
        self._rules = rules
        self._deadline_at = now + rules.deadline_ms
        self._began_at = now
        self._expires_at = 0
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._raw = False
        self.stage = Stage.BEGUN
        self.user: str | None = None
        """Authenticated user; it stays during a repeated authentication."""
        self.repeated = False
        """True from the beginning of a second authentication on."""

    @property
    def awaits_raw(self) -> bool:
        """True if the next frame is a token without a header."""
        return self.stage is Stage.TOKENS and self._raw

    @property
    def is_pending(self) -> bool:
        """True until the mechanism has accepted, and during a repeated authentication."""
        return self.stage is not Stage.OPEN

    @property
    def mechanism(self) -> str:
        """Mechanism of the last handshake; '' before it."""
        return self._mechanism

    @property
    def claimed(self) -> str:
        """User that the client claims to be; '' while it has named none."""
        return "" if self._exchange is None else self._exchange.claimed

    def is_overdue(self, now: InstantMs) -> bool:
        """True if the login takes too long."""
        return self.stage is not Stage.OPEN and now >= self._deadline_at

    def judge(self, api_key: int, now: InstantMs) -> Verdict:
        """Return the outcome for a request with a header."""
        if self.stage is Stage.OPEN:
            return self._judge_open(api_key, now)
        if self.stage is Stage.BEGUN:
            if api_key == _API_VERSIONS:
                return Verdict.SERVE
            return Verdict.LOGIN if api_key == _HANDSHAKE else Verdict.ILLEGAL
        if self.stage is Stage.TOKENS and api_key == _AUTHENTICATE:
            return Verdict.LOGIN
        return Verdict.ILLEGAL

    def _judge_open(self, api_key: int, now: InstantMs) -> Verdict:
        if not self._expires_at:
            return Verdict.SERVE
        if api_key == _HANDSHAKE and now - self._began_at >= REPEATED_MIN_MS:
            return Verdict.LOGIN
        return Verdict.EXPIRED if now >= self._expires_at else Verdict.SERVE

    def on_handshake(self, mechanism: str, version: int, now: InstantMs) -> HandshakeAnswer:
        """Begin an exchange; a mechanism that is not enabled ends the login."""
        assert self.stage in (Stage.BEGUN, Stage.OPEN), "judged before"
        if mechanism not in self._rules.mechanisms:
            self.stage = Stage.FAILED
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, self._rules.mechanisms)
        self.repeated = self.stage is Stage.OPEN
        if self.repeated:
            self._deadline_at = now + self._rules.deadline_ms
        self._began_at = now
        self._raw = version == 0
        self._exchange = None
        if not self.repeated or mechanism == self._mechanism:
            self._mechanism = mechanism
            self._exchange = self._rules.begin(mechanism)
        self.stage = Stage.TOKENS
        return HandshakeAnswer(ErrorCode.NONE, self._rules.mechanisms)

    def on_token(self, token: bytes, now: InstantMs) -> TokenAnswer | Later:
        """Take the next token. The answer to a failure is the same for every reason. What is
        ``Later`` goes to ``on_outcome`` when it is there; nothing else is taken until then.
        """
        assert self.stage is Stage.TOKENS, "judged before"
        try:
            step = self._step(token)
        except LoginFailedError as failure:
            return self.on_outcome(failure, now)
        if isinstance(step, Later):
            self.stage = Stage.CHECKING
            return step
        return self.on_outcome(step, now)

    def on_outcome(self, step: Step | LoginFailedError, now: InstantMs) -> TokenAnswer:
        """Take what the mechanism answers to the token."""
        assert self.stage in (Stage.TOKENS, Stage.CHECKING), "taken before"
        if isinstance(step, Step) and step.user is not None and self.user not in (None, step.user):
            step = LoginFailedError("the user changed during re-authentication")
        if isinstance(step, LoginFailedError):
            self.stage = Stage.FAILED
            return self._failed(str(step))
        if step.user is None:
            self.stage = Stage.TOKENS
            return TokenAnswer(ErrorCode.NONE, None, step.token, 0)
        self.user = step.user
        self.stage = Stage.OPEN
        lifetime_ms = _shorter(self._rules.lifetime_ms, step.lifetime_ms)
        self._expires_at = now + lifetime_ms if lifetime_ms else 0
        return TokenAnswer(ErrorCode.NONE, None, step.token, lifetime_ms)

    def _step(self, token: bytes) -> Step | Later:
        if self._exchange is None:
            raise LoginFailedError("the mechanism changed during re-authentication")
        if len(token) > self._exchange.token_bytes_max:
            raise LoginFailedError(f"a token of {len(token)} bytes")
        return self._exchange.step(token)

    def _failed(self, reason: str) -> TokenAnswer:
        message = (
            "Authentication failed during authentication due to invalid credentials with SASL"
            f" mechanism {self._mechanism}"
        )
        return TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, message, b"", 0, reason)


def _shorter(one_ms: int, other_ms: int) -> int:
    """Return the shorter of two lifetimes, where 0 has no end."""
    return min(one_ms, other_ms) if one_ms and other_ms else one_ms or other_ms
