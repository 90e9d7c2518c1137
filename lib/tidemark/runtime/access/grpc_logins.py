"""Logins of gRPC callers, who send a password or a token with each call.

A stream is one call: who has opened it is not asked again until the login ends.
"""

import asyncio
from typing import Any, Final, Protocol

import grpc

from tidemark.runtime.access.header_logins import (
    HeaderLogin,
    HeaderLogins,
    RefusedLoginError,
    TooManyLoginsError,
)
from tidemark.runtime.clock import Clock
from tidemark.runtime.peers import Peer, RefusedPeerError, host_of

HEADER: Final = "authorization"
_WRONG: Final = "the credentials do not fit"
_MISSING: Final = "log in: send the metadata 'authorization' with a password or a token"


class CountsLogins(Protocol):
    """Counts of logins, by their outcome."""

    succeeded: int
    failed: int


class GrpcLogins:
    """Callers of one server, by their metadata ``authorization``."""

    def __init__(
        self,
        logins: HeaderLogins,
        clock: Clock,
        *,
        lifetime_ms: int,
        failure_delay_ms: int,
        counts: CountsLogins,
    ) -> None:
        """``lifetime_ms`` bounds streams; with 0 only tokens end."""
        self._logins = logins
        self._clock = clock
        self._lifetime_ms = lifetime_ms
        self._failure_delay_s = failure_delay_ms / 1_000
        self._counts = counts

    async def peer_of(self, context: Any) -> Peer:
        """Return the caller. Raises RefusedPeerError; after the delay, if a login fails."""
        header = dict(context.invocation_metadata() or ()).get(HEADER)
        host = host_of(context.peer())
        if header is None:
            raise RefusedPeerError(_MISSING, grpc.StatusCode.UNAUTHENTICATED)
        try:
            found = await self._logins.of_header(str(header), host)
        except TooManyLoginsError as flood:
            raise RefusedPeerError(str(flood), grpc.StatusCode.RESOURCE_EXHAUSTED) from None
        except RefusedLoginError as refusal:
            self._counts.failed += 1
            self._logins.note_failure(refusal, host)
            await asyncio.sleep(self._failure_delay_s)
            raise RefusedPeerError(_WRONG, grpc.StatusCode.UNAUTHENTICATED) from None
        self._counts.succeeded += 1
        return Peer(f"User:{found.user}", self._left_s(found))

    def _left_s(self, login: HeaderLogin) -> float | None:
        limits = []
        if self._lifetime_ms:
            limits.append(self._lifetime_ms)
        if login.ends_at_ms is not None:
            limits.append(max(1, login.ends_at_ms - self._clock.wall_ms()))
        return min(limits) / 1_000 if limits else None
