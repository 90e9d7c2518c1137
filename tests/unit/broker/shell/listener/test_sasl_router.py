"""Tokens on a connection that logs in, as frames."""

import asyncio
import struct

import pytest
from broker.core.login import Exchange, LoginFailedError, LoginRules, Step
from broker.shell.listener.connection import Connection
from broker.shell.listener.sasl_router import LoginLimits, SaslRouter
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import request_header
from tidemark.kafka.long_tail import write_request
from tidemark.protocol.audit import no_note
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import make_listener
from unit.broker.shell.listener.test_connection import Client


class LoggingIn(Client):
    """A client that may be disconnected."""

    def abort(self) -> None:
        self.reading = False


class TwoTokens:
    """Wants b"" and then b"ok"."""

    token_bytes_max = 16
    claimed = "a"

    def __init__(self) -> None:
        self._wanted = [b"", b"ok"]

    def step(self, token: bytes) -> Step:
        if token != self._wanted.pop(0):
            raise LoginFailedError("another token")
        return Step(b"", None if self._wanted else "a")


def begin(_: str) -> Exchange:
    return TwoTokens()


def handshake(version: int) -> bytes:
    header = request_header(ApiKey.SASL_HANDSHAKE, version, 1, "me")
    return header + write_request(ApiKey.SASL_HANDSHAKE, version, {"mechanism": "PLAIN"})


def sent(*frames: bytes) -> tuple[str | None, bool]:
    """The user of a connection after these frames, and whether it is closed."""

    async def main() -> tuple[str | None, bool]:
        parts = World().parts
        rules = LoginRules(("PLAIN",), deadline_ms=60_000, lifetime_ms=0, begin=begin)
        limits = LoginLimits.of(parts.facts.config)
        router = SaslRouter(
            parts.router(),
            rules,
            limits,
            parts.facts.clock,
            parts.counters,
            listener="SAFE",
            note_login=no_note,
        )
        stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        client, connection = LoggingIn(stream), Connection(make_listener(parts, router))
        connection.connection_made(client)
        client.readable(connection)
        assert connection.login is not None
        outcome = connection.login.user, connection.closed
        connection.connection_lost(None)
        client.close()
        return outcome

    return asyncio.run(main())


@pytest.mark.feature("SE31")
def test_a_token_without_a_header_may_be_shorter_than_any_request() -> None:
    assert sent(handshake(0), b"", b"ok") == ("a", False)


@pytest.mark.parametrize(
    "frames",
    [(b"",), (handshake(1), b""), (handshake(0), b"", b"ok", b"")],
    ids=["before the handshake", "where a header is due", "after the login"],
)
def test_no_other_frame_may_be(frames: tuple[bytes, ...]) -> None:
    assert sent(*frames)[1]
