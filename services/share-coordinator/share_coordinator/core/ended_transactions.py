"""Transactions that have ended, by producer: a write of their acknowledgements that arrives late is
refused. Nothing would end it.

Transactions v2 (KIP-890) have an epoch each: the end of one opens the next. In v1 all transactions
of a producer's session have one epoch. The first one ends it here.

A record replaces the one before it of the same producer. So it repeats the ends of which leaders
may not know: the next owner of the shard notifies them, however late it comes, as nobody else does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from tidemark.codec.share_transaction_records import (
    EndNotice,
    TransactionEndRecord,
    TransactionEndValue,
)
from tidemark.model.ids import ProducerEpoch, ProducerId
from tidemark.model.share_state import SharePartitionKey, TransactionKey

SETTLED_MS: Final = 600_000
"""Time after which an end of which all leaders know is written again without its share-partitions,
so that later owners need not notify anybody. A producer's next end, if it comes before, does so.
"""
KEPT_MS: Final = 24 * 3_600_000
"""Time for which an end is kept: longer than any write may be on its way."""
NOTICE_PARTITIONS_MAX: Final = 1_000
"""Share-partitions in the earlier ends of one record. Beyond it the oldest ends are left out: their
leaders have not answered for long, and find the ends when they read the states.
"""


class EndedTransactions:
    """Only ``replay`` changes the ends, which are in the order of the log. ``notified`` is memory
    of this owner: another one notifies leaders once more than it has to.
    """

    def __init__(self) -> None:
        self._ends: dict[ProducerId, TransactionEndValue] = {}
        self._notified: dict[ProducerId, frozenset[ProducerEpoch]] = {}
        """Epochs of transactions in ``_ends`` of whose end all leaders know."""

    def __len__(self) -> int:
        return len(self._ends)

    def is_ended(self, transaction: TransactionKey) -> bool:
        """True if the transaction has ended."""
        return transaction.producer_epoch < self.open_from(transaction.producer_id)

    def open_from(self, producer_id: ProducerId) -> int:
        """Return the lowest producer epoch whose transaction may be open."""
        end = self._ends.get(producer_id)
        return 0 if end is None else end.open_from

    def record_of(self, producer_id: ProducerId) -> TransactionEndRecord | None:
        """Return a copy of the live record; None: it was deleted."""
        end = self._ends.get(producer_id)
        return None if end is None else TransactionEndRecord(producer_id, end)

    def end_of(
        self,
        producer_id: ProducerId,
        open_from: int,
        notices: Iterable[EndNotice],
        *,
        commits: bool,
        wall_ms: int,
    ) -> TransactionEndValue:
        """Return the value that replaces the producer's last one. ``notices``: the transactions
        that held records, in order of their epochs.
        """
        end = TransactionEndValue(open_from=open_from, commits=commits, ended_at=wall_ms)
        return _with(end, (*self._unanswered(producer_id, wall_ms), *notices))

    def notified(self, transaction: TransactionKey) -> None:
        """All leaders know of the end of this transaction."""
        producer_id, epoch = transaction
        end = self._ends.get(producer_id)
        if end is not None and any(one.producer_epoch == epoch for one in _notices(end)):
            self._notified[producer_id] = self._notified.get(producer_id, frozenset()) | {epoch}

    def unanswered(self, wall_ms: int) -> Iterator[tuple[TransactionKey, EndNotice]]:
        """Yield the transactions that held records and ended, as far as leaders may not know of
        it.
        """
        for producer_id in self._ends:
            for notice in self._unanswered(producer_id, wall_ms):
                yield TransactionKey(producer_id, notice.producer_epoch), notice

    def _unanswered(self, producer_id: ProducerId, wall_ms: int) -> Iterator[EndNotice]:
        end = self._ends.get(producer_id)
        known = self._notified.get(producer_id, frozenset())
        for notice in () if end is None else _notices(end):
            if notice.ended_at + KEPT_MS > wall_ms and notice.producer_epoch not in known:
                yield notice

    def settled(self, wall_ms: int) -> list[TransactionEndRecord]:
        """Return records that take the place of older ends, without the transactions of which all
        leaders know.
        """
        return [
            TransactionEndRecord(producer_id, _with(end, self._unanswered(producer_id, wall_ms)))
            for producer_id, end in self._ends.items()
            if producer_id in self._notified
            and end.ended_at + SETTLED_MS <= wall_ms < end.ended_at + KEPT_MS
        ]

    def expired(self, wall_ms: int) -> list[TransactionEndRecord]:
        """Return the tombstones of ends that are kept no longer."""
        return [
            TransactionEndRecord(producer_id, None)
            for producer_id, end in self._ends.items()
            if end.ended_at + KEPT_MS <= wall_ms
        ]

    def replay(self, record: TransactionEndRecord) -> None:
        """A record of the log, in log order."""
        if record.value is None:
            self._ends.pop(record.producer_id, None)
            self._notified.pop(record.producer_id, None)
            return
        self._ends[record.producer_id] = record.value
        known = self._notified.pop(record.producer_id, frozenset())
        kept = known & {one.producer_epoch for one in _notices(record.value)}
        if kept:
            self._notified[record.producer_id] = kept

    def facts(self) -> object:
        """Return what the log leads to, for comparisons."""
        return self._ends


def _notices(end: TransactionEndValue) -> Iterator[EndNotice]:
    """Yield the transactions of a record that held records, in the order of their ends."""
    yield from end.earlier
    if end.held:
        epoch = ProducerEpoch(end.open_from - 1)
        yield EndNotice(epoch, end.commits, end.ended_at, end.held)


def _with(end: TransactionEndValue, notices: Iterable[EndNotice]) -> TransactionEndValue:
    """Return the end with these transactions that held records, in the order of their ends."""
    earlier = list(notices)
    held: tuple[SharePartitionKey, ...] = ()
    if earlier and earlier[-1].producer_epoch == end.open_from - 1:
        held = earlier.pop().held
    return replace(end, held=held, earlier=_newest(earlier))


def _newest(notices: list[EndNotice]) -> tuple[EndNotice, ...]:
    """Return the last of them, up to the bound."""
    room, kept = NOTICE_PARTITIONS_MAX, len(notices)
    while kept and len(notices[kept - 1].held) <= room:
        kept -= 1
        room -= len(notices[kept].held)
    return tuple(notices[kept:])
