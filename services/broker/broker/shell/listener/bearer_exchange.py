"""The server's side of SASL/OAUTHBEARER (RFC 7628, KIP-255)."""

import re
from typing import Final

from tidemark.protocol.bearer_tokens import TOKEN_BYTES_MAX, BearerError
from tidemark.runtime.access.bearer_check import BearerCheck

from broker.core.login import Later, LoginFailedError, Step

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<acts_for>[^,]*))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?auth=[Bb]earer +"
    r"(?P<token>[\w.~+/=-]+)\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01",
    re.ASCII,
)
_AROUND_TOKEN_BYTES: Final = 1_024


class BearerExchange:
    """One login by OAUTHBEARER: a single token."""

    token_bytes_max = TOKEN_BYTES_MAX + _AROUND_TOKEN_BYTES

    def __init__(self, tokens: BearerCheck) -> None:
        self._tokens = tokens
        self.claimed = ""

    def step(self, token: bytes) -> Later:
        """Take the client's message. Raises LoginFailedError."""
        match = _MESSAGE.fullmatch(token.decode("latin-1"))
        if match is None:
            raise LoginFailedError("the message is not that of OAUTHBEARER")

        async def checked() -> Step:
            try:
                found, lifetime_ms = await self._tokens.check(match["token"])
            except BearerError as problem:
                raise LoginFailedError(str(problem)) from None
            self.claimed = found.user
            if match["acts_for"] not in (None, "", found.user):
                raise LoginFailedError("the client wants to act for another user")
            return Step(b"", found.user, lifetime_ms)

        return Later(checked)
