"""The client's side of SCRAM (RFC 5802) as Kafka's clients speak it: without channel binding, and
with passwords as they are, where the RFC would normalise them (SASLprep). A library that follows
the RFC would refuse some passwords that Kafka's tools have set.
"""

import base64
import binascii
import hmac
from typing import Final

from tidemark.model.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_from,
    salted_password,
)

_NO_BINDING: Final = "n,,"
_PARTS_MAX: Final = 16


class ScramRefusedError(Exception):
    """The server's message cannot be accepted, or is a refusal."""


class ScramClient:
    """One login. ``first``, ``final`` and ``verify`` are called in this order."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        """``nonce``: printable, without a comma, different at each login."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return (_NO_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the final message, which proves the password. Deriving its key takes milliseconds,
        in which other threads run. Raises ScramRefusedError.
        """
        text, parts = _parts(server_first)
        nonce, salt, iterations = parts.get("r", ""), _bytes_in(parts, "s"), parts.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramRefusedError("the server's nonce does not extend the client's")
        if not (iterations.isascii() and iterations.isdecimal() and len(iterations) < 9):
            raise ScramRefusedError("the server sent no iterations")
        count = int(iterations)
        if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
            raise ScramRefusedError(
                f"the server wants {count} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are"
                " accepted"
            )
        binding = base64.b64encode(_NO_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        message = f"{self._first_bare},{text},{without_proof}".encode()
        salted = salted_password(self._mechanism, self._password, salt, count)
        proof = self._proof(salted, credential_from(self._mechanism, salted, salt, count), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _proof(self, salted: bytes, keys: ScramCredential, message: bytes) -> bytes:
        hash_name = self._mechanism.hash_name
        self._server_signature = hmac.digest(keys.server_key, message, hash_name)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        signature = hmac.digest(keys.stored_key, message, hash_name)
        return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    def verify(self, server_final: bytes) -> None:
        """Check that the server has the user's keys. Raises ScramRefusedError."""
        _, parts = _parts(server_final)
        if "e" in parts:
            raise ScramRefusedError(f"the server refuses: {parts['e']}")
        assert self._server_signature, "called after final"
        if not hmac.compare_digest(_bytes_in(parts, "v"), self._server_signature):
            raise ScramRefusedError("the server does not have the user's keys: it is an impostor")


def _parts(message: bytes) -> tuple[str, dict[str, str]]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramRefusedError("the server's message is not text") from None
    pairs = [part.partition("=") for part in text.split(",", _PARTS_MAX)]
    return text, {name: value for name, _, value in pairs}


def _bytes_in(parts: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(parts.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        raise ScramRefusedError(f"the server's message has no usable {name!r}") from None
