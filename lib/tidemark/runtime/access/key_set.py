"""The identity provider's key set: read in a thread, kept, and read again when it is old or lacks a
key, at a bounded rate.
"""

import asyncio
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from tidemark.protocol.bearer_tokens import Keys, KeySetError, read_keys
from tidemark.runtime.access.oauth_config import OauthConfig
from tidemark.runtime.clock import Clock
from tidemark.runtime.telemetry import fields
from tidemark.runtime.tls import TlsError, TlsSettings, client_context

log = logging.getLogger(__name__)

DOCUMENT_BYTES_MAX: Final = 256 * 1024
FETCH_S_MAX: Final = 5.0
_PIECE_BYTES: Final = 16 * 1024


class KeySetCache:
    """Keys of one provider. ``newest`` is called for every token."""

    def __init__(self, config: OauthConfig, clock: Clock, fetch: Callable[[], bytes]) -> None:
        self._refresh_ms = config.sasl_oauthbearer_jwks_endpoint_refresh_ms
        self._pause_ms = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
        self._url = config.sasl_oauthbearer_jwks_endpoint_url
        self._clock = clock
        self._fetch = fetch
        self._lock = asyncio.Lock()
        self._keys: Keys = {}
        self._read_at_ms: int | None = None
        self._tried_at_ms: int | None = None

    async def newest(self, *, lacks_key: bool = False) -> Keys:
        """Return the keys; with ``lacks_key`` read them again first, if the last try is not too
        young. A failure is logged, and leaves the keys that there are.
        """
        if self._is_due(lacks_key=lacks_key):
            async with self._lock:
                if self._is_due(lacks_key=lacks_key):
                    await self._read()
        return self._keys

    def _is_due(self, *, lacks_key: bool) -> bool:
        now = self._clock.now_ms()
        if self._tried_at_ms is not None and now - self._tried_at_ms < self._pause_ms:
            return False
        return lacks_key or self._read_at_ms is None or now - self._read_at_ms >= self._refresh_ms

    async def _read(self) -> None:
        self._tried_at_ms = self._clock.now_ms()
        try:
            self._keys = read_keys(await asyncio.to_thread(self._fetch))
        except KeySetError as problem:
            log.warning("key set not read", extra=fields(url=self._url, reason=str(problem)))
            return
        self._read_at_ms = self._clock.now_ms()
        log.info("key set read", extra=fields(url=self._url, keys=len(self._keys)))


def fetch_from(config: OauthConfig) -> Callable[[], bytes]:
    """Return the function that reads the document of a configuration, and raises KeySetError."""
    url, ca = (
        config.sasl_oauthbearer_jwks_endpoint_url,
        config.sasl_oauthbearer_jwks_endpoint_ca_location,
    )
    if urlsplit(url).scheme == "file":
        return lambda: _from_file(Path(unquote(urlsplit(url).path)))
    return lambda: _from_server(url, Path(ca) if ca else None)


def _from_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _bounded(file)
    except OSError as problem:
        raise KeySetError(f"cannot read {path}: {problem.strerror}") from None


def _from_server(url: str, ca: Path | None) -> bytes:
    try:
        context: ssl.SSLContext = client_context(TlsSettings(ca=ca))
        opener = urllib.request.build_opener(
            _NoRedirect(), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=FETCH_S_MAX) as response:
            return _bounded(response)
    except TlsError as problem:
        raise KeySetError(str(problem)) from None
    except (OSError, HTTPException, ValueError) as problem:
        raise KeySetError(f"cannot be read: {getattr(problem, 'reason', problem)}") from None


def _bounded(source: IO[bytes]) -> bytes:
    """Read to the end, within the bounds of size and time."""
    ends_s, found = time.monotonic() + FETCH_S_MAX, bytearray()
    while piece := source.read(_PIECE_BYTES):
        found += piece
        if len(found) > DOCUMENT_BYTES_MAX:
            raise KeySetError(f"larger than {DOCUMENT_BYTES_MAX} bytes")
        if time.monotonic() > ends_s:
            raise KeySetError(f"takes longer than {FETCH_S_MAX:.0f} s")
    return bytes(found)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could lead to a server without TLS."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""
        return
