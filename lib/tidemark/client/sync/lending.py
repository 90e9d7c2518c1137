"""The consumer behind an iteration in another thread.

A hop to the loop for each record would cost more than the record. So the iteration borrows the rest
of a batch, and every other call first takes back what it has not yielded: the position is behind
the last record that the user has seen, as with ``async for``.
"""

from collections import deque
from typing import Any

from tidemark.client.consumer.consumer import Consumer
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.consumer.positions import PartitionState
from tidemark.model.topics import TopicPartition

_POLL_MS = 1_000


class LendingConsumer(Consumer):
    """Consumer that lends decoded records to an iteration.

    Invariant: the lent records are the last ones taken from the lender.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._lent: deque[ConsumerRecord] = deque()
        self._lender: PartitionState | None = None
        self._epoch = -1
        """Leader epoch of the lent records."""

    def next_lent(self, *, polled: bool = False) -> ConsumerRecord | None:
        """Return the next lent record, which counts as a poll; None if ``lend`` has to be called,
        or was just called (``polled``) and found nothing.

        Called in the iteration's thread: it reads single values, which is safe while the loop runs.
        """
        if not polled and self._group is not None and self._group.on_next_record():
            return None
        try:
            return self._lent.popleft()
        except IndexError:
            return None

    async def lend(self) -> None:
        """Poll, and lend the next record and the rest of its batch."""
        polled = await self.poll(1, timeout_ms=_POLL_MS)
        if not polled:
            return
        self._lender = self._fetcher.states[TopicPartition(polled[0].topic, polled[0].partition)]
        if self._spans is None:  # otherwise each record has a span
            polled += self._lender.take_decoded(self.config.max_poll_records - 1)
        self._epoch = self._lender.position_epoch
        self._lent = deque(polled)

    def take_back(self) -> None:
        """Set the position back to the first record that the iteration has not yielded."""
        unseen: deque[ConsumerRecord] = deque()
        try:
            while True:
                unseen.appendleft(self._lent.pop())
        except IndexError:
            pass  # the iteration may take the last one meanwhile
        state = self._lender
        if not unseen or state is None or state.put_back(unseen):
            return
        # The fetcher has gone back, for the log was cut off.
        if state.position is not None and state.position > unseen[0].offset:
            state.seek(unseen[0].offset, self._epoch)
            self._fetcher.changed.set()
