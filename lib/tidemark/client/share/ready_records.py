"""Records that a member has acquired, and that its application has not received. Pure."""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidemark.client.share.deliveries import PartitionDeliveries, ShareRecord

_PARTS_OF_LOCK: Final = 4


class _Answer:
    """Records of one partition from one answer: their locks end together."""

    def __init__(
        self, deliveries: PartitionDeliveries, records: list[ShareRecord], now: float, lock_ms: int
    ) -> None:
        self.deliveries = deliveries
        self.records = records
        self.expires_at = now + lock_ms
        self.return_at = self.expires_at - lock_ms / _PARTS_OF_LOCK

    def take(self, records_max: int) -> list[ShareRecord]:
        taken, self.records = self.records[:records_max], self.records[records_max:]
        self.deliveries.hand_out(taken)
        return taken


class Unseen(NamedTuple):
    """Acquired records of one partition that the application never receives."""

    deliveries: PartitionDeliveries
    offsets: list[int]


class ReadyRecords:
    """Queue of acquired records, in the order of answers."""

    def __init__(self) -> None:
        self._answers: deque[_Answer] = deque()

    @property
    def is_empty(self) -> bool:
        """True if no records wait for the application."""
        return not self._answers

    def add(
        self, deliveries: PartitionDeliveries, records: list[ShareRecord], now: float, lock_ms: int
    ) -> None:
        """Add records of one answer, whose locks hold for ``lock_ms`` from now."""
        self._answers.append(_Answer(deliveries, records, now, lock_ms))

    def take(self, records_max: int, now: float) -> list[ShareRecord]:
        """Hand out at most ``records_max`` records. Those whose lock has ended are dropped: they
        are delivered again, perhaps to another member.
        """
        taken: list[ShareRecord] = []
        self._answers = deque(one for one in self._answers if one.expires_at > now)
        while self._answers and len(taken) < records_max:
            taken += self._answers[0].take(records_max - len(taken))
            if not self._answers[0].records:
                self._answers.popleft()
        return taken

    def drop(self, lost: Iterable[PartitionDeliveries]) -> None:
        """Drop the records of partitions whose locks have ended."""
        ids = set(map(id, lost))
        self._answers = deque(one for one in self._answers if id(one.deliveries) not in ids)

    def next_return(self) -> float | None:
        """Return the time at which ``take_back`` is due; None if nothing is to be given back."""
        due = (one.return_at for one in self._answers if one.deliveries.takes_own_fields)
        return min(due, default=None)

    def take_back(self, now: float) -> list[Unseen]:
        """Remove records in the last quarter of their lock, for brokers that do not count their
        delivery: the application is too slow to receive them in time.
        """
        due = [
            one for one in self._answers if one.deliveries.takes_own_fields and one.return_at <= now
        ]
        self._answers = deque(one for one in self._answers if one not in due)
        return [_unseen(one) for one in due if one.expires_at > now]

    def unseen_of(self, ending: Iterable[PartitionDeliveries], now: float) -> list[Unseen]:
        """Return records under lock of partitions whose session ends, for brokers that do not count
        their delivery.
        """
        ids = {id(one) for one in ending if one.takes_own_fields}
        return [
            _unseen(one)
            for one in self._answers
            if id(one.deliveries) in ids and one.expires_at > now
        ]


def _unseen(answer: _Answer) -> Unseen:
    return Unseen(answer.deliveries, [record.offset for record in answer.records])
