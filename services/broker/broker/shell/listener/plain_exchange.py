"""The server's side of SASL/PLAIN (RFC 4616), against the credentials of SCRAM in the metadata."""

from typing import Final

from tidemark.runtime.access.password_checks import PasswordChecks, WrongPasswordError

from broker.core.login import Later, LoginFailedError, Step

_TOKEN_BYTES_MAX: Final = 2 * 1024


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
            try:
                await self._checks.check(user, password)
            except WrongPasswordError as wrong:
                raise LoginFailedError(str(wrong)) from None
            return Step(b"", user)

        return Later(checked)
