"""The server's side of SCRAM (RFC 5802), over the credentials in the metadata.

An unknown user, and one without a credential for the mechanism, is answered like any other: with a
salt made from the name and a secret of the cluster, and with a refusal of the proof.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

import scramp  # type: ignore[import-untyped]
from tidemark.model.scram import (
    MECHANISM_NAMES,
    ScramCredential,
    UserCredentials,
    unknown_user_credential,
)

from broker.core.login import LoginFailedError, Step

Users = Callable[[], tuple[Mapping[str, UserCredentials], bytes]]
"""Returns the users of the newest metadata, and the secret for unknown ones."""

_PROCESS_SECRET: Final = secrets.token_bytes(32)
"""Stands in for the cluster's secret with a controller of an older release."""


class ScramExchange:
    """One login by SCRAM."""

    token_bytes_max = 2 * 1024

    def __init__(self, mechanism: str, users: Users) -> None:
        self._mechanism = MECHANISM_NAMES[mechanism]
        self._users = users
        self._known = False
        self._first = True
        self.claimed = ""
        self._server = scramp.ScramMechanism(mechanism).make_server(self._credential)

    def step(self, token: bytes) -> Step:
        """Take the client's first or final message. Raises LoginFailedError."""
        try:
            text = token.decode()
            if self._first:
                self._first = False
                self._server.set_client_first(text)
                return Step(self._server.get_server_first().encode())
            self._server.set_client_final(text)
            final = self._server.get_server_final().encode()
        except (scramp.ScramException, UnicodeDecodeError) as refused:
            raise LoginFailedError(str(refused)) from None
        if not self._known:
            raise LoginFailedError("the user has no credential for the mechanism")
        return Step(final, self.claimed)

    def _credential(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        """Return the credential of a user in the library's form; it takes as long for an unknown
        one.
        """
        users, secret = self._users()
        made_up = unknown_user_credential(secret or _PROCESS_SECRET, self._mechanism, name)
        found = made_up
        for one in users.get(name, ()):
            if one.mechanism is self._mechanism:
                found = one
        self.claimed, self._known = name, found is not made_up
        return _as_tuple(found)


def _as_tuple(one: ScramCredential) -> tuple[bytes, bytes, bytes, int]:
    return one.salt, one.stored_key, one.server_key, one.iterations
