"""Login over gRPC: a password or a token in the metadata of each call. gRPC sends it over TLS only.

The metadata are made in a thread of gRPC.
"""

import base64
import threading
import time
from typing import Final

import grpc

from tidemark.client.config import ClientConfig
from tidemark.client.security_config import OAUTHBEARER

TOKEN_KEPT_S: Final = 5.0
"""Time for which a token is used before the client's function is asked for another one."""


class GrpcLogin(grpc.AuthMetadataPlugin):
    """Metadata ``authorization`` of the calls of one client."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._token, self._taken_at_s = "", float("-inf")

    def __call__(
        self, _: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        """Return the metadata; the call fails if the client's function for tokens does."""
        try:
            header = self.header()
        except Exception as problem:  # noqa: BLE001 - of the caller's function; gRPC reports it
            callback((), problem)
            return
        callback((("authorization", header),), None)

    def header(self) -> str:
        """Return the header (RFC 7617, RFC 6750)."""
        config = self._config
        if config.sasl_mechanism == OAUTHBEARER:
            return f"Bearer {self._newest_token()}"
        credentials = f"{config.sasl_username}:{config.sasl_password}".encode()
        return f"Basic {base64.b64encode(credentials).decode()}"

    def _newest_token(self) -> str:
        assert self._config.sasl_oauthbearer_token is not None, "checked by the configuration"
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._taken_at_s >= TOKEN_KEPT_S:
                self._token = self._config.sasl_oauthbearer_token()
                self._taken_at_s = now_s
            return self._token
