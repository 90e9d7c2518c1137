"""The server's side of SASL/PLAIN (RFC 4616), against the credentials of SCRAM in the metadata.

A password is checked in a thread: deriving its keys takes milliseconds. Few are checked at a time,
and only so many wait: more logins than that are refused.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.model.scram import UserCredentials, password_fits

from broker.core.login import Later, LoginFailedError, Step

Users = Callable[[], tuple[Mapping[str, UserCredentials], bytes]]
"""Returns the users of the newest metadata, and the secret for unknown ones."""

CHECKS_AT_ONCE: Final = 2
CHECKS_MAX: Final = 512
_TOKEN_BYTES_MAX: Final = 2 * 1024


class PasswordChecks:
    """Checks of passwords of all connections of a broker."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._turn = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._count = 0

    async def check(self, user: str, password: str) -> None:
        """Return if the password is the user's. Raises LoginFailedError."""
        if self._count >= CHECKS_MAX:
            raise LoginFailedError(f"{CHECKS_MAX} passwords wait for their check")
        self._count += 1
        try:
            async with self._turn:
                users, secret = self._users()
                fits = await asyncio.to_thread(password_fits, users, secret, user, password)
        finally:
            self._count -= 1
        if not fits:
            raise LoginFailedError("the password does not fit, or there is no such user")


class PlainExchange:
    """One login by PLAIN: a single token."""

    token_bytes_max = _TOKEN_BYTES_MAX

    def __init__(self, checks: PasswordChecks) -> None:
        self._checks = checks
        self.claimed = ""

    def step(self, token: bytes) -> Later:
        """Take ``[authorization id] NUL user NUL password``. Raises LoginFailedError."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginFailedError("the token is not UTF-8") from None
        if len(parts) != 3:
            raise LoginFailedError(f"the token has {len(parts)} parts, not 3")
        acts_for, user, password = parts
        self.claimed = user
        if not user or not password:
            raise LoginFailedError("the user or the password is empty")
        if acts_for not in ("", user):
            raise LoginFailedError("the client wants to act for another user")

        async def checked() -> Step:
            await self._checks.check(user, password)
            return Step(b"", user)

        return Later(checked)
