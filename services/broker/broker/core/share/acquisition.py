"""Selection of records of a read for a member (KIP-932, KIP-1206).

Records go in batches of the log: whole ones with ``BATCH_OPTIMIZED``, which may exceed the number
that the member asked for, any part of one with ``RECORD_LIMIT``. Nothing here looks into a batch.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from tidemark.model.ids import InstantMs, Offset

from broker.core.share.key_order import KeyOrder
from broker.core.share.settings import ShareSettings
from broker.core.share.states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NEXT_DELIVERY,
    Cause,
)
from broker.core.share.window import READY, Lock, Range, Window


class AcquireMode(Enum):
    """``ShareAcquireMode`` of a ShareFetch request, by its number there."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class LogBatch(NamedTuple):
    """One batch of a read, from its header."""

    first_offset: Offset
    last_offset: Offset
    has_records: bool = True
    """False: a control batch, or one of an aborted transaction that the group may not read."""
    keys: Mapping[Offset, int | None] | None = None
    """Hash of the key of each record, None for a record without a key; offsets that are missing
    have no record. Needed where the group orders records by key, and not looked at elsewhere.
    """


class LogRead(NamedTuple):
    """Part of the log from an offset on."""

    first_offset: Offset
    """From where it was read; the first batch may begin before it."""
    end: Offset
    """Exclusive. Offsets up to here that are in no batch have no record."""
    batches: Sequence[LogBatch]


class ReadPlan(NamedTuple):
    """Part of the log that has what may be acquired."""

    first_offset: Offset
    end: Offset | None
    """Exclusive; None: as far as the request's limits allow."""


class Wanted(NamedTuple):
    """Request of a member for records of one share-partition."""

    member: str
    records_max: int
    batch_records_max: int
    """Batches of the log are reported, and locked, together up to this number of records."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class AcquiredRecords(NamedTuple):
    """``AcquiredRecords`` of a ShareFetch answer."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int


_FIRST_DELIVERY: Final = 1


class Acquisition:
    """One member's share of one read. ``taken`` has the ranges, ``archived`` those that are
    archived on the way and must be written.
    """

    def __init__(
        self, window: Window, settings: ShareSettings, wanted: Wanted, lock: Lock, now: InstantMs
    ) -> None:
        self.taken: list[Range] = []
        self.archived: list[Range] = []
        self._window = window
        self._settings = settings
        self._wanted = wanted
        self._is_strict = wanted.mode is AcquireMode.RECORD_LIMIT
        self._lock = lock
        self._now = now
        self._records = 0
        self._is_over = False

    def run(self, read: LogRead) -> None:
        """Take what is available, from the first batch on."""
        window = self._window
        cursor = max(read.first_offset, window.start)
        if cursor > window.end:
            return  # another leader's window: never leave a gap
        for first, last, has_records, keys in read.batches:
            if last < cursor:
                continue
            if first > cursor:
                self._pass(cursor, Offset(first - 1))
                cursor = first
            if self._records >= self._wanted.records_max:
                return
            if not has_records:
                self._pass(cursor, last)
            elif window.order is None:
                self._take_batch(cursor, last, last - first + 1)
            else:
                assert keys is not None, "an order by key needs keys"
                self._take_by_key(window.order, cursor, last, keys)
            if self._is_over:
                return
            cursor = Offset(last + 1)
        if read.end > cursor:
            self._pass(cursor, Offset(read.end - 1))

    def _pass(self, first: Offset, last: Offset) -> None:
        """Archive offsets without a record for the group. The next leader finds them likewise:
        there is nothing to write.
        """
        window = self._window
        if first < window.end:
            for one in window.over(first, min(last, Offset(window.end - 1))):
                if one.state is AVAILABLE:
                    (piece,) = window.carve(max(first, one.first), min(last, one.last))
                    window.become(piece, NEXT_DELIVERY[AVAILABLE, Cause.NO_RECORD])
                    window.join(piece)
            first = window.end
        if first <= last:
            window.append(Range(first, last, ARCHIVED, 0))

    def _take_batch(self, first: Offset, last: Offset, batch_records: int) -> None:
        while first < self._window.end:
            one = self._window.at(first)
            stop = min(one.last, last)
            if one.state is AVAILABLE and one.ready_at <= self._now:
                self._take_again(one, first, stop)
                if self._is_over:
                    return
            if stop == last:
                return
            first = Offset(stop + 1)
        self._take_new(first, last, batch_records)

    def _take_again(self, one: Range, first: Offset, last: Offset) -> None:
        """Take records that were delivered before, or that a former leader left out."""
        if one.count >= self._settings.deliveries_max:
            self._give_up(first, last)
            return
        records = self._portion(one, last - first + 1)
        is_isolated = one.count >= self._settings.isolated_from
        if not records:
            self._is_over = True
            return
        self._acquire(first, Offset(first + records - 1))
        self._is_over = is_isolated or self._has_all()

    def _acquire(self, first: Offset, last: Offset) -> None:
        (piece,) = self._window.carve(first, last)
        piece.count += 1
        piece.ready_at = READY
        self._window.become(piece, NEXT_DELIVERY[AVAILABLE, Cause.FETCHED])
        piece.lock = self._lock
        self._lock.hold(first, last)
        self._note(piece)

    def _has_all(self) -> bool:
        """Return True if a strict limit is reached."""
        return self._is_strict and self._records >= self._wanted.records_max

    def _portion(self, one: Range, records: int) -> int:
        """Number of the ``records`` that are delivered. A batch that fails again and again is
        halved with each attempt, and goes record by record in the last one.
        """
        if self._is_strict:
            records = min(records, self._wanted.records_max - self._records)
        if one.count < self._settings.isolated_from:
            return records
        if self._records:
            return 0
        if one.count >= self._settings.deliveries_max - 1:
            return min(records, 1)
        if not one.portion:
            one.portion = max(1, one.records // 2)
        return min(records, one.portion)

    def _give_up(self, first: Offset, last: Offset) -> None:
        """Archive records at a limit that was lowered."""
        (piece,) = self._window.carve(first, last)
        self._window.become(piece, NEXT_DELIVERY[AVAILABLE, self._settings.exhausted])
        self.archived.append(piece)

    def _take_new(self, first: Offset, last: Offset, batch_records: int) -> None:
        """Take records beyond the window's end. Its bound cuts a batch only where a member wants an
        exact number, or where the batch is longer than the bound.
        """
        room = self._window.room(self._settings.records_max)
        if room <= 0:
            self._is_over = True
            return
        if self._is_strict:
            room = min(room, self._wanted.records_max - self._records)
        is_cut = self._is_strict or batch_records > self._settings.records_max
        if is_cut and last - first >= room:
            last = Offset(first + room - 1)
            self._is_over = True
        if self.taken and self._may_extend(first):
            self._window.extend(last)
        else:
            added = Range(first, last, ACQUIRED, _FIRST_DELIVERY, self._lock)
            self._lock.hold(first, last)
            self._window.append(added)
            self.taken.append(added)
        self._records += last - first + 1
        if self._is_strict and self._records >= self._wanted.records_max:
            self._is_over = True

    def _may_extend(self, first: Offset) -> bool:
        before = self.taken[-1]
        return (
            before.last + 1 == first
            and before.count == _FIRST_DELIVERY
            and not before.unseen
            and before.records < self._wanted.batch_records_max
        )

    # -- by key

    def _take_by_key(
        self, order: KeyOrder, first: Offset, last: Offset, keys: Mapping[Offset, int | None]
    ) -> None:
        """Take records of one batch, each as far as earlier records of its key allow. Records that
        must wait become part of the window, which is bounded exactly here.
        """
        window = self._window
        if last >= window.end:
            room = window.room(self._settings.records_max)
            known_last = min(last, Offset(window.end + max(0, room) - 1))
            if known_last >= window.end:
                window.append(Range(window.end, known_last, AVAILABLE, 0))
            is_cut, last = known_last < last, known_last
        else:
            is_cut = False
        for one in window.over(first, last) if first <= last else ():
            if one.state is AVAILABLE:
                one_first, one_last = max(first, one.first), min(last, one.last)
                self._learn(order, one_first, one_last, keys)
                if one.ready_at <= self._now:
                    self._take_range_by_key(order, one_first, one_last, keys)
            if self._is_over:
                return
        self._is_over = is_cut

    def _learn(
        self, order: KeyOrder, first: Offset, last: Offset, keys: Mapping[Offset, int | None]
    ) -> None:
        for number in range(first, last + 1):
            key_hash = keys.get(Offset(number))
            if key_hash is not None:
                order.learn(Offset(number), key_hash)

    def _take_range_by_key(
        self, order: KeyOrder, first: Offset, last: Offset, keys: Mapping[Offset, int | None]
    ) -> None:
        """Take runs of records that the member may have, out of one available range."""
        if self._window.at(first).count >= self._settings.deliveries_max:
            self._give_up(first, last)
            return
        is_isolated = self._window.at(first).count >= self._settings.isolated_from
        offset = first
        while offset <= last and not self._is_over:
            if offset not in keys:
                self._pass(offset, offset)
            elif order.may_take(offset, self._wanted.member):
                records = self._portion(self._window.at(offset), last - offset + 1)
                if not records:
                    self._is_over = True
                    return
                run_last = self._take_run(order, offset, Offset(offset + records - 1), keys)
                self._acquire(offset, run_last)
                self._is_over = is_isolated or self._has_all()
                offset = run_last
            offset = Offset(offset + 1)

    def _take_run(
        self, order: KeyOrder, first: Offset, last: Offset, keys: Mapping[Offset, int | None]
    ) -> Offset:
        """Last offset of the consecutive records from ``first`` on that the member may have."""
        member = self._wanted.member
        offset = first
        while True:
            order.take(offset, member)
            following = Offset(offset + 1)
            if following > last or following not in keys or not order.may_take(following, member):
                return offset
            offset = following

    def _note(self, piece: Range) -> None:
        """Report a range, together with the one before where they are alike."""
        self._records += piece.records
        if self.taken:
            before = self.taken[-1]
            if before.records < self._wanted.batch_records_max:
                self._window.join(piece)
                if before.last == piece.last:
                    return
        self.taken.append(piece)


def learn_pending(window: Window, order: KeyOrder, read: LogRead) -> None:
    """Note the keys of records that transactions hold since an earlier leader."""
    for first, last, _, keys in read.batches:
        first, last = max(first, window.start), min(last, Offset(window.end - 1))
        for one in window.over(first, last) if keys is not None and first <= last else ():
            if one.lock is None or one.lock.pending is None:
                continue
            for number in range(max(first, one.first), min(last, one.last) + 1):
                key_hash = None if keys is None else keys.get(Offset(number))
                if key_hash is not None:
                    order.learn_held(Offset(number), key_hash)
    order.was_read(read.first_offset, read.end)
