"""An identity provider: a key set over HTTP on loopback, and tokens."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey
from kafka.net.sasl.oauth import AbstractTokenProvider
from tidemark.cli.dev.layout import HOST
from tidemark.runtime.clock import Clock

LIFETIME_S = 600


class IdentityProvider:
    """Signs tokens for anybody."""

    def __init__(self, url: str, key: RSAKey) -> None:
        self.url = url
        self._key = key

    def token(self, sub: str = "alice", **claims: Any) -> str:
        usual = {"iss": self.url, "aud": "tidemark", "exp": Clock().wall_ms() // 1_000 + LIFETIME_S}
        header = {"alg": "RS256", "kid": self._key.kid}
        return jwt.encode(header, {**usual, "sub": sub, **claims}, self._key)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """kafka-python's source of tokens."""

    def __init__(self, provider: IdentityProvider) -> None:
        super().__init__()
        self._provider = provider

    def token(self) -> str:
        return self._provider.token()


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    key = RSAKey.generate_key(2048, {"kid": "one"})
    document = json.dumps({"keys": [key.as_dict(private=False)]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield IdentityProvider(f"http://{HOST}:{server.server_port}/keys", key)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
