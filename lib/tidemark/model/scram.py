"""SCRAM credentials of users (RFC 5802, RFC 7677), and what may be stored of a password.

Numbers and bounds are Kafka's (ScramMechanism, KIP-554).
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError


class ScramMechanism(IntEnum):
    """Mechanism of SASL, with its number on the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Name in SASL: ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """Name in hashlib: ``sha256``."""
        return f"sha{self.name.rpartition('_')[2]}"


MECHANISM_NAMES: Final[Mapping[str, ScramMechanism]] = {
    one.sasl_name: one for one in ScramMechanism
}
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Bounds of Kafka. A client derives its keys by this many rounds of HMAC."""
ITERATIONS_DEFAULT: Final = 8_192
"""Iterations of credentials that Tidemark's command line makes."""
SALT_BYTES: Final = 32
SALT_BYTES_MIN: Final = 12
"""Shortest salt that the library for SCRAM accepts. Kafka's tools send about 25 bytes."""
SALT_BYTES_MAX: Final = 1_024
SALTED_PASSWORD_BYTES_MAX: Final = 1_024
USER_NAME_BYTES_MAX: Final = 255
"""Longest name of a user: it is the name of a znode."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Credential of a user for one mechanism. The keys prove a password and cannot be used to log
    in, but allow guesses at the password, and to pose as the server: they are never shown.
    """

    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


UserCredentials = tuple[ScramCredential, ...]
"""Credentials of one user, at most one for each mechanism; empty: there is no such user."""


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return Hi(password, salt, i): what KIP-554's clients send in place of a password."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_from(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.hash_name)
    return ScramCredential(mechanism, iterations, salt, stored_key, server_key)


def unknown_user_credential(secret: bytes, mechanism: ScramMechanism, name: str) -> ScramCredential:
    """Return a credential that no password fits, always the same for a name: the answers to an
    unknown user are like those to a known one. ``secret`` is the cluster's.
    """

    def derived(purpose: str) -> bytes:
        text = f"{purpose}\0{mechanism.sasl_name}\0{name}".encode()
        return hmac.digest(secret, text, mechanism.hash_name)

    return ScramCredential(
        mechanism,
        ITERATIONS_DEFAULT,
        derived("salt")[:SALT_BYTES],
        derived("stored key"),
        derived("server key"),
    )


def password_fits(
    users: Mapping[str, UserCredentials], secret: bytes, name: str, password: str
) -> bool:
    """Return True if the password is the user's, for mechanisms that send it (SASL/PLAIN, Basic).

    Takes milliseconds, in which other threads run: call it outside of the event loop. ``secret`` is
    the cluster's: an unknown user costs as much as one with default iterations.
    """
    made_up = unknown_user_credential(secret, ScramMechanism.SCRAM_SHA_512, name)
    stored = max(users.get(name, ()), key=lambda one: one.mechanism, default=made_up)
    salted = salted_password(stored.mechanism, password, stored.salt, stored.iterations)
    derived = credential_from(stored.mechanism, salted, stored.salt, stored.iterations)
    is_equal = hmac.compare_digest(derived.stored_key, stored.stored_key)
    return is_equal and stored is not made_up


def check_user_name(name: str) -> None:
    """Raise TidemarkError UNACCEPTABLE_CREDENTIAL for a name that no user may have."""
    problem = ""
    if not name:
        problem = "Username must not be empty."
    elif len(name.encode()) > USER_NAME_BYTES_MAX:
        problem = f"Username must have at most {USER_NAME_BYTES_MAX} bytes."
    elif _CONTROL.search(name):
        problem = "Username must not contain control characters."
    if problem:
        raise TidemarkError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)


def check_strength(iterations: int, salt: bytes) -> None:
    """Raise TidemarkError UNACCEPTABLE_CREDENTIAL for iterations or a salt out of bounds."""
    problem = ""
    if iterations < ITERATIONS_MIN:
        problem = "Too few iterations"
    elif iterations > ITERATIONS_MAX:
        problem = "Too many iterations"
    elif not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        problem = f"The salt must have {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes"
    if problem:
        raise TidemarkError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
