"""Order in which the requests of one connection take effect: that of their arrival.

Kafka serves one request of a connection at a time. Here Produce and Fetch are pipelined: they take
effect when they arrive, and the next request need not wait for their replies. Any other request
that is not answered at once is a barrier: no request begins before its reply is ready. While a
produce waits for a check before its append, only other produces may begin, and they keep their
order in each partition.
"""

from typing import Final

from tidemark.kafka.apis import ApiKey

_PRODUCE: Final = int(ApiKey.PRODUCE)
PIPELINED: Final = frozenset({_PRODUCE, int(ApiKey.FETCH)})


class RequestOrder:
    """Requests in progress on one connection."""

    __slots__ = ("_appends", "_barrier", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        """True if any request may begin: the usual case, and the only test of most requests."""
        self._barrier: object | None = None
        self._appends = 0

    def waits(self, api_key: int, place: object) -> None:
        """Register a request that is answered later, at its ``place`` in the order of replies."""
        if api_key not in PIPELINED:
            assert self._barrier is None, "nothing begins behind a barrier"
            self._barrier = place
            self.is_open = False

    def answered(self, place: object) -> None:
        """Finish a request that waited; its reply is ready."""
        if place is self._barrier:
            self._barrier = None
            self.is_open = not self._appends

    def append_began(self) -> None:
        """Register a produce with batches that are not in the log yet."""
        self._appends += 1
        self.is_open = False

    def append_ended(self) -> None:
        """Finish such a produce: its batches are appended or refused."""
        assert self._appends > 0, "ended before it began"
        self._appends -= 1
        self.is_open = not self._appends and self._barrier is None

    def may_begin(self, api_key: int) -> bool:
        """True if the next request may take effect now."""
        return self.is_open or (self._barrier is None and api_key == _PRODUCE)
