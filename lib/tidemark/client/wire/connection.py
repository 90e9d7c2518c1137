"""One TCP connection to a broker: pipelined requests, matched to responses by correlation id."""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from tidemark.client.config import Address, ClientConfig
from tidemark.client.errors import (
    ClientConfigError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_for,
)
from tidemark.client.wire.framing import FrameAssembler, FrameError
from tidemark.client.wire.login import ConnectionLogin
from tidemark.codec.buffers import Buffer
from tidemark.kafka import long_tail
from tidemark.kafka.api_versions import (
    ApiVersionsRequest,
    read_api_versions_response,
    write_api_versions_request,
)
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.headers import MalformedRequestError, read_response_header, request_header
from tidemark.model.errors import ErrorCode
from tidemark.runtime.tls import TlsError, client_context, tls_settings

_LENGTH: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_SOFTWARE_NAME: Final = "tidemark-python"
_SOFTWARE_VERSION: Final = "0.1.0"


class UnansweredRequest(NamedTuple):
    """Request that was written and awaits its response."""

    api_key: ApiKey
    version: int
    frame: asyncio.Future[memoryview]


class BrokerConnection(asyncio.BufferedProtocol):
    """Connection to one broker. Create it with ``open``; a lost connection cannot be reopened.

    Responses arrive in request order. A request that times out would delay those behind it, so it
    closes the connection.
    """

    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        on_late: Callable[[Address], None] = lambda _: None,
    ) -> None:
        """``on_late`` is called when the broker leaves a request unanswered."""
        self.address = address
        self._on_late = on_late
        self._config = config
        self._assembler = FrameAssembler(frame_bytes_max=config.response_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[memoryview]] = {}
        self._slots = asyncio.Semaphore(config.pending_requests_max)
        self._writable = asyncio.Event()
        self._writable.set()
        self._next_correlation_id = 0
        self._lost: ClientError | None = None
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._features: Mapping[str, int] = {}
        self._login = ConnectionLogin(config, str(address)) if config.uses_sasl else None

    @classmethod
    async def open(
        cls,
        address: Address,
        config: ClientConfig,
        on_late: Callable[[Address], None] = lambda _: None,
    ) -> "BrokerConnection":
        """Connect, negotiate versions, and log in if the settings say so.

        Raises ConnectionLostError, RequestTimedOutError, AuthenticationError.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(config.connections_setup_timeout_ms / 1_000):
                _, connection = await loop.create_connection(
                    lambda: cls(address, config, on_late),
                    address.host,
                    address.port,
                    ssl=_tls(config),
                )
        except TimeoutError:
            raise ConnectionLostError(
                ErrorCode.NETWORK_EXCEPTION,
                f"no connection within {config.connections_setup_timeout_ms} ms",
                where=str(address),
            ) from None
        except ssl.SSLError as problem:
            raise _handshake_failed(problem, str(address)) from None
        except OSError as problem:
            raise ConnectionLostError(
                ErrorCode.NETWORK_EXCEPTION,
                f"cannot connect: {_reason(problem)}",
                where=str(address),
            ) from None
        try:
            await connection.negotiate()
            await connection.ready()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_lost(self) -> bool:
        """True if the connection accepts requests no longer."""
        return self._lost is not None

    @property
    def pending_count(self) -> int:
        """Number of requests without a response."""
        return len(self._pending)

    def version(self, api_key: ApiKey, *, version_max: int | None = None) -> int:
        """Return the highest common version, at most ``version_max``.

        Raises UnsupportedVersionError.
        """
        ours = APIS[api_key]
        low, high = self._versions.get(api_key, (0, -1))
        version = min(ours.max if version_max is None else version_max, ours.max, high)
        if version < max(ours.served_min, low):
            served = f"versions {low} to {high}" if high >= 0 else "no version"
            raise UnsupportedVersionError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api_key.name}: the broker serves {served},"
                f" this client speaks {ours.served_min} to {ours.max}",
                where=str(self.address),
            )
        return version

    def serves(self, api_key: ApiKey) -> bool:
        """True if the broker advertises the API."""
        return api_key in self._versions

    def has_feature(self, name: str, level: int = 1) -> bool:
        """True if the broker supports this level of a feature."""
        return self._features.get(name, 0) >= level

    async def request(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        *,
        timeout_ms: float | None = None,
    ) -> memoryview:
        """Send one request, with ``body`` in pieces, and return the response body.

        Raises ClientError.
        """
        return await self.answer(await self.send(api_key, version, body), timeout_ms=timeout_ms)

    async def send(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer]
    ) -> UnansweredRequest:
        """Write one request once a slot and buffer space are free. Raises ClientError."""
        await self._slots.acquire()
        try:
            await self._writable.wait()
            if api_key is not ApiKey.API_VERSIONS:
                await self.ready()
            self._raise_if_lost()
            frame = self._begin(api_key, version, body)
        except BaseException:
            self._slots.release()
            raise
        frame.add_done_callback(self._free_slot)
        return UnansweredRequest(api_key, version, frame)

    def _begin(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer]
    ) -> asyncio.Future[memoryview]:
        frame: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._pending[self._write(api_key, version, body)] = frame
        return frame

    async def ready(self) -> None:
        """Return when requests may be sent: after the login, and while none is due again.

        What is sent next must be written without another wait. Raises ClientError.
        """
        login = self._login
        while login is not None and login.is_due:
            self._raise_if_lost()
            await login.ensure(self._ask_login, self._lose)

    async def _ask_login(self, api_key: ApiKey, fields: Mapping[str, object]) -> long_tail.Struct:
        """Ask during a login, when no other request may be sent. Raises ClientError."""
        version = self.version(api_key)
        self._raise_if_lost()
        frame = self._begin(api_key, version, [long_tail.write_request(api_key, version, fields)])
        unanswered = UnansweredRequest(api_key, version, frame)
        body = await self.answer(unanswered, timeout_ms=self._config.connections_setup_timeout_ms)
        try:
            return long_tail.read_response(api_key, version, body)
        except MalformedRequestError as problem:
            raise self._malformed(api_key, problem) from None

    async def answer(
        self, request: UnansweredRequest, *, timeout_ms: float | None = None
    ) -> memoryview:
        """Wait for the response body of a request that ``send`` wrote. Raises ClientError."""
        allowed_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        api_key, version, answer = request
        try:
            async with asyncio.timeout(allowed_ms / 1_000):
                frame = await answer
        except TimeoutError:
            late = RequestTimedOutError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{api_key.name} was not answered within {allowed_ms:.0f} ms",
                where=str(self.address),
            )
            self._lose(late)
            self._on_late(self.address)
            raise late from None
        try:
            _, position = read_response_header(frame, api_key, version)
        except MalformedRequestError as problem:
            raise self._malformed(api_key, problem) from None
        return frame[position:]

    async def send_only(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        await self._writable.wait()
        await self.ready()
        self._raise_if_lost()
        self._write(api_key, version, body)

    def close(self) -> None:
        """Close the connection; unanswered requests fail."""
        self._lose(
            ConnectionLostError(
                ErrorCode.NETWORK_EXCEPTION, "connection closed", where=str(self.address)
            )
        )

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop before it reads."""
        return self._assembler.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop after it has read."""
        try:
            for frame in self._assembler.received(nbytes):
                self._on_frame(frame)
        except FrameError as problem:
            self._lose(
                ConnectionLostError(
                    ErrorCode.NETWORK_EXCEPTION,
                    f"the peer does not speak Kafka's protocol: {problem}",
                    where=str(self.address),
                    hint="check that the address is a Kafka listener, and that security_protocol"
                    f" {self._config.security_protocol} is the listener's",
                )
            )

    def eof_received(self) -> bool:
        """Called by the loop when the broker has closed its side; closes the connection."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection is lost."""
        reason = f"connection lost: {exc}" if exc else "the broker closed the connection"
        self._lose(
            ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, reason, where=str(self.address))
        )

    def pause_writing(self) -> None:
        """Called by the loop when the kernel's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by the loop when the kernel's buffer has space again."""
        self._writable.set()

    async def negotiate(self) -> None:
        """Send ApiVersions with the newest version.

        A broker without that version answers in version 0 with the versions that it has (KIP-511).
        """
        version = APIS[ApiKey.API_VERSIONS].max
        request = ApiVersionsRequest(_SOFTWARE_NAME, _SOFTWARE_VERSION)
        body = await self._ask_versions(version, request)
        if _ERROR_CODE.unpack_from(body)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
            body = await self._ask_versions(version, request)
        try:
            answer = read_api_versions_response(body, version)
        except MalformedRequestError as problem:
            raise self._malformed(ApiKey.API_VERSIONS, problem) from None
        if answer.error_code != ErrorCode.NONE:
            raise error_for(
                answer.error_code, "negotiating versions failed", where=str(self.address)
            )
        self._versions = {key: (low, high) for key, low, high in answer.api_versions}
        self._features = {name: high for name, _, high in answer.supported_features}

    async def _ask_versions(self, version: int, request: ApiVersionsRequest) -> memoryview:
        body = await self.request(
            ApiKey.API_VERSIONS,
            version,
            [write_api_versions_request(version, request)],
            timeout_ms=self._config.connections_setup_timeout_ms,
        )
        if len(body) < _ERROR_CODE.size:
            raise self._malformed(ApiKey.API_VERSIONS, ValueError("empty"))
        return body

    def _free_slot(self, answer: asyncio.Future[memoryview]) -> None:
        """Release a slot after a response or a cancelled wait, whose exception is then dropped."""
        self._slots.release()
        if not answer.cancelled():
            answer.exception()

    def _write(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        header = request_header(api_key, version, correlation_id, self._config.client_id)
        size = len(header) + sum(len(piece) for piece in body)
        assert self._transport is not None, "written before connected"
        self._transport.writelines([_LENGTH.pack(size) + header, *body])
        return correlation_id

    def _on_frame(self, frame: memoryview) -> None:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        answer = self._pending.pop(correlation_id, None)
        if answer is None:
            raise FrameError(f"a response to an unknown request (correlation id {correlation_id})")
        if not answer.done():  # otherwise the caller was cancelled
            answer.set_result(frame)

    def _malformed(self, api_key: ApiKey, problem: Exception) -> ClientError:
        error = ConnectionLostError(
            ErrorCode.NETWORK_EXCEPTION,
            f"malformed answer to {api_key.name}: {problem}",
            where=str(self.address),
        )
        self._lose(error)
        return error

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise self._loss()

    def _lose(self, reason: ClientError) -> None:
        """Close the connection once and fail all waiting requests with the reason."""
        if self._lost is not None:
            return
        self._lost = reason
        self._writable.set()
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(self._loss())
        if self._transport is not None:
            self._transport.abort()

    def _loss(self) -> ConnectionLostError:
        """Return a new exception for each request: a shared one would collect all tracebacks."""
        assert self._lost is not None, "not lost"
        return ConnectionLostError(
            ErrorCode.NETWORK_EXCEPTION,
            self._lost.what,
            where=self._lost.where,
            hint=self._lost.advice,
        )


def _tls(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the context of a connection, from the files as they are now. Raises
    ClientConfigError.
    """
    if not config.uses_tls:
        return None
    try:
        return client_context(
            tls_settings(config),
            check_host=config.ssl_endpoint_identification_algorithm == "https",
        )
    except TlsError as problem:
        raise ClientConfigError(ErrorCode.INVALID_CONFIG, str(problem)) from None


def _handshake_failed(problem: ssl.SSLError, where: str) -> ConnectionLostError:
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = f"the broker's certificate is not accepted: {problem.verify_message}"
        hint = "check ssl_ca_location, and that the certificate has the host name of the address"
    else:
        reason = str(problem.reason or problem).replace("_", " ").lower()
        hint = "check that the listener speaks TLS, and accepts the client's certificate"
    return ConnectionLostError(
        ErrorCode.NETWORK_EXCEPTION, f"the TLS handshake failed: {reason}", where=where, hint=hint
    )


def _reason(problem: OSError) -> str:
    """Return why a connection failed, without the address."""
    if isinstance(problem, socket.gaierror) or not problem.errno:
        return problem.strerror or str(problem)
    return os.strerror(problem.errno)
