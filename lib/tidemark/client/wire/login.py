"""Login of one connection with SASL (KIP-43, KIP-152), and its repetition before the session ends
(KIP-368).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from tidemark.client.config import ClientConfig
from tidemark.client.errors import AuthenticationError, ClientError, ConnectionLostError
from tidemark.client.security_config import OAUTHBEARER, PLAIN
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.scram import MECHANISM_NAMES
from tidemark.protocol.scram_client import ScramClient, ScramRefusedError

REPEATED_AT: Final = 0.85
"""Part of the session lifetime after which a client authenticates again, as in Kafka."""
_NONCE_BYTES: Final = 24


class Ask(Protocol):
    """Sends one request of a login and returns its answer."""

    def __call__(self, api_key: ApiKey, fields: Mapping[str, object]) -> Awaitable[Struct]:
        """Raises ClientError."""


class ConnectionLogin:
    """Login of one connection."""

    def __init__(self, config: ClientConfig, where: str) -> None:
        self._config = config
        self._where = where
        self._lock = asyncio.Lock()
        self._due_at_s: float | None = 0.0

    @property
    def is_due(self) -> bool:
        """True before the first login, while one is under way, and when the session ends soon."""
        due = self._due_at_s
        return due is not None and asyncio.get_running_loop().time() >= due

    async def ensure(self, ask: Ask, give_up: Callable[[ClientError], None]) -> None:
        """Log in, unless another caller has meanwhile. ``give_up`` closes the connection, which
        cannot be used after half a login. Raises AuthenticationError, ClientError.
        """
        async with self._lock:
            if not self.is_due:
                return
            began_s = asyncio.get_running_loop().time()
            try:
                lifetime_ms = await self._log_in(ask)
            except ClientError as problem:
                give_up(problem)
                raise
            except BaseException:
                give_up(_interrupted(self._where))
                raise
            lasts_s = lifetime_ms / 1_000 * REPEATED_AT
            self._due_at_s = began_s + lasts_s if lifetime_ms else None

    async def _log_in(self, ask: Ask) -> int:
        """Return the lifetime of the session in ms; 0 without an end."""
        mechanism = self._config.sasl_mechanism
        answer = await ask(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
        if answer.error_code:
            enabled = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationError(
                ErrorCode(answer.error_code),
                f"the listener does not enable sasl_mechanism {mechanism}; it enables: {enabled}",
                where=self._where,
                hint="choose one of them, or another listener",
            )
        if mechanism in MECHANISM_NAMES:
            return await self._scram(ask)
        return int((await self._token(ask, await self._single(mechanism))).session_lifetime)

    async def _scram(self, ask: Ask) -> int:
        config = self._config
        number = MECHANISM_NAMES[config.sasl_mechanism]
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        client = ScramClient(number, config.sasl_username, config.sasl_password, nonce)
        try:
            first = await self._token(ask, client.first())
            final = await asyncio.to_thread(client.final, first.auth_bytes)
            last = await self._token(ask, final)
            client.verify(last.auth_bytes)
        except ScramRefusedError as problem:
            raise AuthenticationError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, str(problem), where=self._where
            ) from None
        return int(last.session_lifetime)

    async def _single(self, mechanism: str) -> bytes:
        """Return the only message of a mechanism without an exchange."""
        config = self._config
        if mechanism == PLAIN:
            return f"\0{config.sasl_username}\0{config.sasl_password}".encode()
        assert mechanism == OAUTHBEARER, mechanism
        assert config.sasl_oauthbearer_token is not None, "checked by the configuration"
        token = await asyncio.to_thread(config.sasl_oauthbearer_token)
        return f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    async def _token(self, ask: Ask, token: bytes) -> Struct:
        answer = await ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token})
        if answer.error_code:
            raise AuthenticationError(
                ErrorCode(answer.error_code),
                f"the login of {self._config.sasl_username!r} failed"
                + (f": {answer.error_message}" if answer.error_message else ""),
                where=self._where,
            )
        return answer


def _interrupted(where: str) -> ConnectionLostError:
    return ConnectionLostError(
        ErrorCode.NETWORK_EXCEPTION, "the login was interrupted", where=where
    )
