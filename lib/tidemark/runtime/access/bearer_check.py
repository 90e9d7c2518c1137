"""Check of bearer tokens (SASL/OAUTHBEARER, HTTP Bearer) with the key set of their provider."""

from tidemark.protocol.bearer_tokens import Keys, TokenRules, UnknownKeyError, VerifiedToken, verify
from tidemark.runtime.access.key_set import KeySetCache
from tidemark.runtime.clock import Clock


class BearerCheck:
    """Check of tokens by the rules of one listener."""

    def __init__(self, keys: KeySetCache, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock

    async def check(self, token: str) -> tuple[VerifiedToken, int]:
        """Return the token and its rest of life in ms. Raises BearerError."""
        try:
            found = self._verified(token, await self._keys.newest())
        except UnknownKeyError:
            found = self._verified(token, await self._keys.newest(lacks_key=True))
        return found, max(1, int(found.expires_at_s * 1_000) - self._clock.wall_ms())

    def _verified(self, token: str, keys: Keys) -> VerifiedToken:
        return verify(token, keys, self._rules, self._clock.wall_ms() / 1_000)
