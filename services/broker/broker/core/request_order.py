"""In which order the requests of one connection take effect: in the order in which they came.

Kafka serves one request of a connection at a time. Here Produce and Fetch are pipelined: they take
effect when they arrive, and the next request need not wait for their answers. Any other request
that is not answered at once is a barrier: no request begins before its answer is there. A produce
that has to be looked at by others before it is appended lets only produces pass, which keep their
order in each partition.
"""

from typing import Final

from tidemark.kafka.apis import ApiKey

_PRODUCE: Final = int(ApiKey.PRODUCE)
PIPELINED: Final = frozenset({_PRODUCE, int(ApiKey.FETCH)})


class RequestOrder:
    """What is under way on one connection."""

    __slots__ = ("_appends", "_barrier", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        """Whether any request may begin: the usual case, and all that most requests ask."""
        self._barrier: object | None = None
        self._appends = 0

    def waits(self, api_key: int, place: object) -> None:
        """A request that has begun is answered later, at its ``place`` in the order of answers."""
        if api_key not in PIPELINED:
            assert self._barrier is None, "nothing begins behind a barrier"
            self._barrier = place
            self.is_open = False

    def answered(self, place: object) -> None:
        """The answer of a request that waited is there."""
        if place is self._barrier:
            self._barrier = None
            self.is_open = not self._appends

    def append_began(self) -> None:
        """A produce has batches that are not in the log yet."""
        self._appends += 1
        self.is_open = False

    def append_ended(self) -> None:
        """They are, or are refused."""
        assert self._appends > 0, "ended before it began"
        self._appends -= 1
        self.is_open = not self._appends and self._barrier is None

    def may_begin(self, api_key: int) -> bool:
        """Whether the next request may take effect now."""
        return self.is_open or (self._barrier is None and api_key == _PRODUCE)
