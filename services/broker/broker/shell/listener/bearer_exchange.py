"""The server's side of SASL/OAUTHBEARER (RFC 7628, KIP-255)."""

import re
from typing import Final

from tidemark.protocol.bearer_tokens import (
    TOKEN_BYTES_MAX,
    BearerError,
    Keys,
    TokenRules,
    UnknownKeyError,
    VerifiedToken,
    verify,
)
from tidemark.runtime.clock import Clock

from broker.core.login import Later, LoginFailedError, Step
from broker.shell.listener.key_set import KeySetCache

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<acts_for>[^,]*))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?auth=[Bb]earer +"
    r"(?P<token>[\w.~+/=-]+)\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01",
    re.ASCII,
)
_AROUND_TOKEN_BYTES: Final = 1_024


class BearerTokens:
    """Check of the tokens of a listener."""

    def __init__(self, keys: KeySetCache, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock

    async def check(self, token: str) -> tuple[VerifiedToken, int]:
        """Return the token and its rest of life in ms. Raises LoginFailedError."""
        try:
            try:
                found = self._verified(token, await self._keys.newest())
            except UnknownKeyError:
                found = self._verified(token, await self._keys.newest(lacks_key=True))
        except BearerError as problem:
            raise LoginFailedError(str(problem)) from None
        return found, max(1, int(found.expires_at_s * 1_000) - self._clock.wall_ms())

    def _verified(self, token: str, keys: Keys) -> VerifiedToken:
        return verify(token, keys, self._rules, self._clock.wall_ms() / 1_000)


class BearerExchange:
    """One login by OAUTHBEARER: a single token."""

    token_bytes_max = TOKEN_BYTES_MAX + _AROUND_TOKEN_BYTES

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens
        self.claimed = ""

    def step(self, token: bytes) -> Later:
        """Take the client's message. Raises LoginFailedError."""
        match = _MESSAGE.fullmatch(token.decode("latin-1"))
        if match is None:
            raise LoginFailedError("the message is not that of OAUTHBEARER")

        async def checked() -> Step:
            found, lifetime_ms = await self._tokens.check(match["token"])
            self.claimed = found.user
            if match["acts_for"] not in (None, "", found.user):
                raise LoginFailedError("the client wants to act for another user")
            return Step(b"", found.user, lifetime_ms)

        return Later(checked)
