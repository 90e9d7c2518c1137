"""Checks of passwords that clients send as they are (SASL/PLAIN, HTTP Basic), against the
credentials of SCRAM in the metadata.

A password is checked in a thread: deriving its keys takes milliseconds. Few are checked at a time,
and only so many wait: more than that are refused.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.model.scram import UserCredentials, password_fits

Users = Callable[[], tuple[Mapping[str, UserCredentials], bytes]]
"""Returns the users of the newest metadata, and the secret for unknown ones."""

CHECKS_AT_ONCE: Final = 2
CHECKS_MAX: Final = 512


class WrongPasswordError(Exception):
    """The password is refused. The text is for the log, never for the client."""


class PasswordChecks:
    """Checks of passwords of all connections of a process."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._turn = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._count = 0

    async def check(self, user: str, password: str) -> None:
        """Return if the password is the user's. Raises WrongPasswordError."""
        if self._count >= CHECKS_MAX:
            raise WrongPasswordError(f"{CHECKS_MAX} passwords wait for their check")
        self._count += 1
        try:
            async with self._turn:
                users, secret = self._users()
                fits = await asyncio.to_thread(password_fits, users, secret, user, password)
        finally:
            self._count -= 1
        if not fits:
            raise WrongPasswordError("the password does not fit, or there is no such user")
