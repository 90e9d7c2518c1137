"""SaslRouter: stands before the router of a listener whose clients authenticate with SASL.

It lets requests through to their handlers once the connection's login is open. Until then frames
are small, the login has a deadline, and a refused client waits for its answer, which costs a guess
time and the broker none.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.headers import MalformedRequestError, RequestHeader
from tidemark.kafka.long_tail import read_request, write_response
from tidemark.model.errors import ErrorCode
from tidemark.protocol.audit import Login as Noted
from tidemark.protocol.audit import NoteLogin
from tidemark.runtime.clock import Clock
from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig
from broker.core.login import (
    Later,
    Login,
    LoginFailedError,
    LoginRules,
    Step,
    TokenAnswer,
    Verdict,
)
from broker.shell.counters import BrokerCounters, LoginCounters
from broker.shell.listener.connection import FRAME_BYTES_MIN, Connection
from broker.shell.listener.connection_host import HandlesFrames
from broker.shell.listener.replies import Reply

log = logging.getLogger(__name__)

FAILURES_LOGGED_MAX: Final = 20
FAILURES_LOGGED_MS: Final = 1_000
"""At most so many failed logins are logged in this time; all of them are counted."""
NAME_CHARS_LOGGED_MAX: Final = 64

_RAW: Final = RequestHeader(int(ApiKey.SASL_AUTHENTICATE), 0, 0, None, 0)
"""Header of a token that came without one, for the order and the times of answers."""


class LoginLimits(NamedTuple):
    """Bounds of connections that are not authenticated, and the frame size of the others."""

    frame_bytes_max: int
    frame_bytes_max_after: int
    failure_delay_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "LoginLimits":
        """Limits as configured."""
        after = config.socket_request_max_bytes
        return cls(
            min(config.sasl_server_max_receive_size, after),
            after,
            config.connection_failed_authentication_delay_ms,
        )


class SaslRouter:
    """Router of one listener with SASL, around the router of all listeners."""

    def __init__(
        self,
        inner: HandlesFrames[Connection],
        rules: LoginRules,
        limits: LoginLimits,
        clock: Clock,
        counters: BrokerCounters,
        *,
        listener: str,
        note_login: NoteLogin,
    ) -> None:
        self._note_login = note_login
        self._inner = inner
        self._rules = rules
        self._limits = limits
        self._clock = clock
        self._requests = counters.requests
        self._listener = listener
        self._logged_since, self._logged = 0, 0
        self.counts: LoginCounters = counters.logins_of(listener)

    def served(self) -> list[ApiKey]:
        """Return the APIs that clients may use once they are authenticated."""
        return self._inner.served()

    def admit(self, connection: Connection) -> None:
        """Begin the login of a new connection."""
        connection.login = Login(self._rules, self._clock.now_ms())
        connection.frame_bytes_max = self._limits.frame_bytes_max

    def is_overdue(self, connection: Connection) -> bool:
        """True if the login of a connection takes too long."""
        login = connection.login
        return login is not None and login.is_overdue(self._clock.now_ms())

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Pass a frame to the router behind, or take it as a step of the login."""
        login = connection.login
        assert login is not None, "admitted by this listener"
        if login.awaits_raw:
            self._requests[ApiKey.SASL_AUTHENTICATE] += 1
            connection.frame_bytes_min = FRAME_BYTES_MIN
            self._take_token(_Client(connection, login, None), bytes(frame))
            return
        match login.judge(frame[0] << 8 | frame[1], self._clock.now_ms()):
            case Verdict.SERVE:
                self._inner.handle(connection, frame)
            case Verdict.LOGIN:
                self._take(connection, login, frame)
            case Verdict.EXPIRED:
                self.counts.expired += 1
                connection.close("the session has expired")
            case Verdict.ILLEGAL:
                self.counts.illegal += 1
                connection.close("a request before authentication")

    def _take(self, connection: Connection, login: Login, frame: memoryview) -> None:
        try:
            header = connection.headers.read(frame)
            if not APIS[ApiKey(header.api_key)].serves(header.api_version):
                self._inner.handle(connection, frame)  # refuses the version
                return
            body = frame[header.body_position :]
            request = read_request(header.api_key, header.api_version, body)
        except MalformedRequestError as problem:
            connection.close(str(problem))
            return
        self._requests[header.api_key] += 1
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            self._take_handshake(connection, login, header, request.mechanism)
            return
        self._take_token(_Client(connection, login, header), bytes(request.auth_bytes))

    def _take_handshake(
        self, connection: Connection, login: Login, header: RequestHeader, mechanism: str
    ) -> None:
        answer = login.on_handshake(mechanism, header.api_version, self._clock.now_ms())
        written = {"error_code": int(answer.error_code), "mechanisms": list(answer.mechanisms)}
        if answer.error_code is ErrorCode.NONE:
            _expect_token(connection, login)
            _answer(connection, header, written)
            return
        body = write_response(header.api_key, header.api_version, written)
        client = _Client(connection, login, header)
        self._count_failure(client, "the mechanism is not enabled")
        self._answer_late(client, _place(client), body)

    def _take_token(self, client: "_Client", token: bytes) -> None:
        answer = client.login.on_token(token, self._clock.now_ms())
        if isinstance(answer, Later):
            client.connection.start(self._finish(client, answer, _place(client)))
        else:
            self._conclude(client, answer, None)

    async def _finish(self, client: "_Client", later: Later, place: Reply) -> None:
        """Take the outcome of a check that takes long. No request is taken until then."""
        outcome: Step | LoginFailedError
        try:
            outcome = await later.work()
        except LoginFailedError as failure:
            outcome = failure
        if not client.connection.closed:
            answer = client.login.on_outcome(outcome, self._clock.now_ms())
            self._conclude(client, answer, place)

    def _conclude(self, client: "_Client", answer: TokenAnswer, place: Reply | None) -> None:
        """Answer a token, at its ``place`` in the order of answers if it has one already."""
        body = b"" if client.header is None else _written(client.header, answer)
        if answer.error_code is not ErrorCode.NONE:
            self._count_failure(client, answer.reason)
            self._answer_late(client, place or _place(client), body)
            return
        # Before the answer: the next request may be taken as soon as it is sent.
        if not self._note_success(client.connection, client.login):
            client.connection.close("the login cannot be written to the audit log")
            return
        if client.header is None:
            place = place or _place(client)
            place.put([len(answer.token).to_bytes(4, "big") + answer.token])
            client.connection.replied(place)
        elif place is None:
            client.connection.answer(client.header, body)
        else:
            place.send([body])

    def _note_success(self, connection: Connection, login: Login) -> bool:
        """Serve the connection as its user from now on, if this was the last token. Returns False
        if it must not be served.
        """
        if login.is_pending:
            _expect_token(connection, login)
            return True
        if not self._note_login(self._noted(connection, login, login.user or "")):
            return False
        if login.repeated:
            self.counts.repeated += 1
        else:
            self.counts.succeeded += 1
            connection.listener.login_ended(connection, failed=False)
            connection.requester = connection.requester._replace(principal=f"User:{login.user}")
            connection.frame_bytes_max = self._limits.frame_bytes_max_after
        return True

    def _noted(self, connection: Connection, login: Login, user: str, failure: str = "") -> Noted:
        """Return a login as it is written down; ``failure`` is the reason of a failed one."""
        succeeded, where = not failure, self._listener
        return Noted(user, connection.address, where, login.mechanism, succeeded, failure)

    def _count_failure(self, client: "_Client", reason: str) -> None:
        """Count a refused client, and log it with its address, unless too many are."""
        self.counts.failed += 1
        client.connection.listener.login_ended(client.connection, failed=True)
        login = client.login
        self._note_login(self._noted(client.connection, login, login.claimed, reason))
        now = self._clock.now_ms()
        if now - self._logged_since >= FAILURES_LOGGED_MS:
            self._logged_since, self._logged = now, 0
        self._logged += 1
        if self._logged <= FAILURES_LOGGED_MAX:
            log.warning(
                "login failed",
                extra=fields(
                    listener=self._listener,
                    peer=client.connection.peer,
                    user=ascii(client.login.claimed[:NAME_CHARS_LOGGED_MAX]),
                    mechanism=client.login.mechanism,
                    reason=reason,
                ),
            )

    def _answer_late(self, client: "_Client", place: Reply, body: bytes) -> None:
        """Send the refusal after the delay, and end the connection. Nothing is read meanwhile. To a
        token without a header there is no answer but the end.
        """
        connection = client.connection
        connection.stop_reading()

        def end() -> None:
            if body:
                place.send([body])
            else:
                connection.close("the login failed")

        connection.listener.loop.call_later(self._limits.failure_delay_ms / 1_000, end)


class _Client(NamedTuple):
    """Client that logs in; ``header`` of its token, None without one."""

    connection: Connection
    login: Login
    header: RequestHeader | None


def _expect_token(connection: Connection, login: Login) -> None:
    """Let the next frame be of any size if it is a token without a header: one of PLAIN has four
    bytes, for a user and a password of one character each.
    """
    if login.awaits_raw:
        connection.frame_bytes_min = 0


def _place(client: _Client) -> Reply:
    """Take a place in the order of answers."""
    reply = client.connection.later(client.header or _RAW)
    client.connection.unhandled = None
    return reply


def _written(header: RequestHeader, answer: TokenAnswer) -> bytes:
    written = {
        "error_code": int(answer.error_code),
        "error_message": answer.message,
        "auth_bytes": answer.token,
        "session_lifetime": answer.lifetime_ms,
    }
    return write_response(header.api_key, header.api_version, written)


def _answer(connection: Connection, header: RequestHeader, written: Mapping[str, object]) -> None:
    connection.answer(header, write_response(header.api_key, header.api_version, written))
