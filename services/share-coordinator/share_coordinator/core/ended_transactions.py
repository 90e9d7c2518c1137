"""Transactions that have ended, by producer: a write of their acknowledgements that arrives late is
refused. Nothing would end it.

Transactions v2 (KIP-890) have an epoch each: the end of one opens the next. In v1 all transactions
of a producer's session have one epoch. The first one ends it here.
"""

from collections.abc import Iterator
from typing import Final

from tidemark.codec.share_transaction_records import TransactionEndRecord, TransactionEndValue
from tidemark.model.ids import ProducerEpoch, ProducerId
from tidemark.model.share_state import TransactionKey

RECENT_MS: Final = 600_000
"""Time in which a leader may have missed an end because the shard's owner died."""
KEPT_MS: Final = 24 * 3_600_000
"""Time for which an end is kept: longer than any write may be on its way."""


class EndedTransactions:
    """Only ``replay`` changes it. Ends are in the order of the log."""

    def __init__(self) -> None:
        self._ends: dict[ProducerId, TransactionEndValue] = {}

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

    def recent(self, wall_ms: int) -> Iterator[tuple[TransactionKey, TransactionEndValue]]:
        """Yield the last transactions that held records and ended lately."""
        for producer_id, end in self._ends.items():
            if end.held and end.ended_at + RECENT_MS > wall_ms:
                yield TransactionKey(producer_id, ProducerEpoch(end.open_from - 1)), end

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
        else:
            self._ends[record.producer_id] = record.value

    def facts(self) -> object:
        """Return what the log leads to, for comparisons."""
        return self._ends
