"""Offsets of live records in the state topic: the log is needed from the oldest of them on.

A record is live while no later one replaces it: of a share-partition its last snapshot (and, above
it, all updates), of a group the last record of each key, of a producer the last end of a
transaction. A tombstone is not needed once it is committed: the records that it deletes lie below
it, and leave the log no later than it does.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from tidemark.codec.share_group_records import ShareGroupRecord
from tidemark.codec.share_records import ShareRecord, ShareSnapshotRecord, ShareUpdateRecord
from tidemark.codec.share_transaction_records import TransactionEndRecord
from tidemark.model.ids import Offset, ProducerId
from tidemark.model.share_state import SharePartitionKey

GroupKey = tuple[type[ShareGroupRecord], str, str]
"""Kind of record, group, and member or nothing."""
LiveKey = SharePartitionKey | GroupKey | ProducerId
"""A producer id is that of the end of a transaction."""


class LiveOffsets:
    """Invariant: in order of offsets, for a record that is noted lies above all before it."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[LiveKey, Offset] = OrderedDict()
        self._end = Offset(0)

    @property
    def end(self) -> Offset:
        """First offset above all records that are noted."""
        return self._end

    @property
    def count(self) -> int:
        """Number of live records, updates apart."""
        return len(self._offsets)

    def note(self, record: ShareRecord, offset: Offset) -> None:
        """A record is in the log at this offset, and committed."""
        assert offset >= self._end, f"offset {offset} below the end {self._end}"
        self._end = Offset(offset + 1)
        if isinstance(record, ShareUpdateRecord):
            return
        key = key_of(record)
        self._offsets.pop(key, None)
        if record.value is not None:
            self._offsets[key] = offset

    def needed_from(self) -> Offset:
        """First offset that is needed: those below it can be deleted."""
        return next(iter(self._offsets.values()), self._end)

    def older_than(self, offset: Offset) -> Iterator[LiveKey]:
        """Live records below an offset, the oldest first."""
        found = takewhile(lambda item: item[1] < offset, self._offsets.items())
        return (key for key, _ in found)

    def check(self) -> None:
        """Assert the invariant."""
        offsets = list(self._offsets.values())
        assert offsets == sorted(offsets), offsets
        assert not offsets or offsets[-1] < self._end, offsets


def key_of(record: ShareSnapshotRecord | ShareGroupRecord | TransactionEndRecord) -> LiveKey:
    """Key by which a later record replaces this one."""
    if isinstance(record, ShareSnapshotRecord):
        return record.key
    if isinstance(record, TransactionEndRecord):
        return record.producer_id
    return type(record), record.group_id, getattr(record, "member_id", "")
