"""LeaderConnection: one connection to a leader, with one request in flight."""

from abc import ABC, abstractmethod
from typing import Final, Protocol

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchRequest,
    FetchResponse,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.model.metadata import Endpoint

FETCH_VERSION: Final = 18
LENGTH_BYTES: Final = 4


class Connect(Protocol):
    """Connects to a leader: ``leader_stream.connect_with``, except in the simulator."""

    async def __call__(
        self, leader: Endpoint, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> "LeaderConnection":
        """Connect. Raises OSError, TimeoutError."""


class LeaderConnection(ABC):
    """One connection. Raises OSError and ConnectionError as sockets do."""

    def __init__(self, *, client_id: str, answer_bytes_max: int) -> None:
        self._client_id = client_id
        self._answer_bytes_max = answer_bytes_max
        self._correlation_id = 0

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def _exchange(self, data: bytes, timeout_s: float) -> memoryview:
        """Send a request, and return the frame of the answer, without its length. It is a view that
        the next call overwrites. Raises OSError, TimeoutError.
        """

    async def fetch(self, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send a fetch and wait for the answer. Records are views into a buffer that the next call
        overwrites. Raises OSError, TimeoutError, MalformedRequestError.
        """
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = request_header(ApiKey.FETCH, FETCH_VERSION, self._correlation_id, self._client_id)
        data = header + write_fetch_request(FETCH_VERSION, request)
        frame = await self._exchange(len(data).to_bytes(LENGTH_BYTES, "big") + data, timeout_s)
        correlation_id, position = read_response_header(frame, ApiKey.FETCH, FETCH_VERSION)
        if correlation_id != self._correlation_id:
            raise ConnectionError(f"answer {correlation_id} to request {self._correlation_id}")
        return read_fetch_response(frame[position:], FETCH_VERSION)

    def _check_size(self, size: int) -> None:
        """Raise ConnectionError for a size that no answer has."""
        if not 0 < size <= self._answer_bytes_max:
            raise ConnectionError(f"invalid size of an answer: {size} bytes")
