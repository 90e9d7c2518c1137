"""An identity provider: a key set over HTTP on loopback, and tokens, also for clients that send a
secret (RFC 6749, 4.4).
"""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote_plus

from joserfc import jwt
from joserfc.jwk import RSAKey
from kafka.net.sasl.oauth import AbstractTokenProvider
from tidemark.cli.dev.layout import HOST
from tidemark.runtime.clock import Clock

LIFETIME_S = 600
CLIENT_SECRET = "secret of every client"


class IdentityProvider:
    """Signs tokens for anybody."""

    def __init__(self, url: str, key: RSAKey) -> None:
        self.url = url
        self.token_url = url.replace("/keys", "/token")
        self._key = key

    def token(self, sub: str = "alice", **claims: Any) -> str:
        now_s = Clock().wall_ms() // 1_000
        usual = {"iss": self.url, "aud": "tidemark", "iat": now_s, "exp": now_s + LIFETIME_S}
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

        def do_POST(self) -> None:
            """A token for the client that the header names, if it knows the secret."""
            self.rfile.read(int(self.headers["Content-Length"]))
            sent = self.headers.get("Authorization", "").removeprefix("Basic ")
            user, _, secret = unquote_plus(base64.b64decode(sent).decode()).partition(":")
            self.send_response(200 if secret == CLIENT_SECRET else 401)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if secret == CLIENT_SECRET:
                answer = {"access_token": provider.token(user), "expires_in": LIFETIME_S}
                self.wfile.write(json.dumps(answer | {"token_type": "Bearer"}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    provider = IdentityProvider(f"http://{HOST}:{server.server_port}/keys", key)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
