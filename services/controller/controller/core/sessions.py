"""Sessions of the console: cookies that name a user, signed with a secret of the cluster. Pure.

Every controller accepts them, also after a restart, and none keeps them. The signature covers the
user's credentials: a changed password, or a removed user, ends all sessions of the user.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from tidemark.model.scram import USER_NAME_BYTES_MAX, UserCredentials

_CHARS_MAX: Final = 1_024
_HASH: Final = "sha256"


class Session(NamedTuple):
    """Session that is valid now."""

    user: str
    expires_ms: int


Fingerprint = Callable[[str], bytes | None]
"""Returns what identifies the present credentials of a user; None: there is no such user."""


def fingerprint(credentials: UserCredentials) -> bytes | None:
    """Return what identifies credentials, from which they cannot be found; None without any."""
    if not credentials:
        return None
    digest = hashlib.sha256()
    for one in sorted(credentials, key=lambda each: each.mechanism):
        digest.update(bytes((one.mechanism, len(one.salt) % 256)) + one.salt + one.stored_key)
    return digest.digest()


def make_cookie(secret: bytes, session: Session, present: bytes) -> str:
    """Return the cookie of a session. ``present``: fingerprint of the user's credentials."""
    assert len(session.user.encode()) <= USER_NAME_BYTES_MAX, "a user that logged in"
    body = _body(session)
    return f"{body}.{_signature(secret, body, present)}"


def read_cookie(secret: bytes, cookie: str, now_ms: int, of_user: Fingerprint) -> Session | None:
    """Return the session of a cookie; None if it is none, is over, or its user has changed."""
    if not secret or len(cookie) > _CHARS_MAX:
        return None
    body, _, signature = cookie.partition(".")
    session = _read_body(body)
    if session is None:
        return None
    present = of_user(session.user)
    if present is None or not hmac.compare_digest(
        _signature(secret, body, present).encode(), signature.encode()
    ):
        return None
    return session if now_ms < session.expires_ms else None


def form_token(secret: bytes, session: str) -> str:
    """Return the token that the forms of a session carry, against cross-site request forgery.
    ``session``: the cookie, or the principal of a caller that has none.
    """
    return hmac.digest(secret, b"form\0" + session.encode(), _HASH).hex()


def is_form_token(secret: bytes, session: str, token: str) -> bool:
    """Return True if a form of the session carries this token."""
    return hmac.compare_digest(form_token(secret, session).encode(), token.encode())


def _body(session: Session) -> str:
    user = base64.urlsafe_b64encode(session.user.encode()).decode()
    return f"{session.expires_ms:x}-{user}"


def _read_body(body: str) -> Session | None:
    expires, _, user = body.partition("-")
    try:
        found = Session(base64.b64decode(user, b"-_", validate=True).decode(), int(expires, 16))
    except (ValueError, binascii.Error):
        return None
    return found if found.user and _body(found) == body else None


def _signature(secret: bytes, body: str, present: bytes) -> str:
    return hmac.digest(secret, f"session\0{body}\0".encode() + present, _HASH).hex()
