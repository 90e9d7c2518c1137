"""Records of a share-partition from its start to its end, as consecutive ranges.

    start (SPSO)                                   end (SPEO, exclusive)
      | ACKNOWLEDGED 0-99 | ACQUIRED 100-199 | AVAILABLE 200-204 |
    before: archived                                 from here on: available, never fetched

Ranges are kept in two lists, so that an offset is found by bisection. A window holds at most some
ten thousand ranges: moving the tail of a list costs less than any tree.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidemark.model.ids import InstantMs, Offset
from tidemark.model.share_state import TERMINAL_STATES, DeliveryState, TransactionKey

from broker.core.share.key_order import KeyOrder
from broker.core.share.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE

READY: Final = InstantMs(0)
NEVER: Final = InstantMs(2**63 - 1)


PendingOutcome = tuple[TransactionKey, DeliveryState]
"""An open transaction, and the state that its commit gives."""


class Lock:
    """Hold of a member, or of a transaction, on records that it acquired or renewed together."""

    __slots__ = ("deadline", "is_over", "member", "pending", "records", "span")

    def __init__(
        self, member: str, deadline: InstantMs, pending: PendingOutcome | None = None
    ) -> None:
        self.member = member
        self.pending = pending
        """Set for the lock of a transaction, which has no member."""
        self.deadline = deadline
        self.records = 0
        """Records held, also those whose acknowledgement is being written."""
        self.span: tuple[Offset, Offset] | None = None
        """First and last offset that it ever held."""
        self.is_over = False
        """Expired or given up: a record whose acknowledgement cannot be written is given back."""

    def hold(self, first: Offset, last: Offset) -> None:
        """Add records."""
        self.records += last - first + 1
        if self.span is None:
            self.span = (first, last)
        else:
            self.span = (min(first, self.span[0]), max(last, self.span[1]))


class Transition(NamedTuple):
    """An acknowledgement that holds once it is written."""

    state: DeliveryState
    delivery_count: int
    ready_at: InstantMs = READY
    pending: PendingOutcome | None = None
    """Outcome of an acknowledgement in a transaction: the record stays ACQUIRED by that."""
    is_unseen: bool = False
    """Its delivery does not count: the application never received the record."""


class Range:
    """Consecutive offsets that share everything. ACQUIRED exactly while it has a lock."""

    __slots__ = (
        *("count", "first", "last", "lock", "portion", "ready_at", "state", "transition"),
        "unseen",
    )

    def __init__(
        self,
        first: Offset,
        last: Offset,
        state: DeliveryState,
        count: int,
        lock: Lock | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.lock = lock
        self.transition: Transition | None = None
        self.ready_at = READY
        """AVAILABLE records are delivered from then on."""
        self.portion = 0
        """Records in a delivery, where the range is isolated and was cut; 0: not decided."""
        self.unseen = 0
        """Deliveries that did not count."""

    def __str__(self) -> str:
        """One line: ``100-199 ACQUIRED 1 member-1``."""
        holder = "" if self.lock is None else f" {self.lock.member}"
        return f"{self.first}-{self.last} {self.state.name} {self.count}{holder}"

    @property
    def records(self) -> int:
        """Number of offsets."""
        return self.last - self.first + 1

    @property
    def is_finished(self) -> bool:
        """True if the records are never delivered again."""
        return self.state in TERMINAL_STATES


def hand_over(one: Range, lock: Lock) -> None:
    """Let another lock hold an acquired range."""
    assert one.lock is not None, "only what is acquired is held"
    one.lock.records -= one.records
    one.lock = lock
    lock.hold(one.first, one.last)


class Window:
    """Invariant: ranges are not empty and cover [start, end) in order without gaps; ``counts`` has
    the records of each state; no AVAILABLE and ready record is below ``_available_from``; start
    and end never go back; the first range is not finished after ``advance``.
    """

    def __init__(self, start: Offset, isolated_from: int, order: KeyOrder | None = None) -> None:
        self.start = start
        self.end = start
        self.counts = [0] * len(DeliveryState)
        self.isolated_from = isolated_from
        """Deliveries from which on ranges are not joined: their bounds say what is delivered."""
        self.order = order
        """None: records are delivered in any order."""
        self._firsts: list[Offset] = []
        self._ranges: list[Range] = []
        self._available_from = self._in_flight_from = start

    def __str__(self) -> str:
        """One line: ``100/_300 available 5 acquired 195``."""
        available, acquired = self.counts[AVAILABLE], self.counts[ACQUIRED]
        return f"{self.start}/_{self.end} available {available} acquired {acquired}"

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def records(self) -> int:
        """Offsets from the start to the end."""
        return self.end - self.start

    def room(self, records_max: int) -> int:
        """Number of records that may be added; negative if the limit was lowered. Dead letters at
        the start, and what is finished between them, do not count: only a queue that cannot be
        written keeps them there. If half as many of them wait as records may be in flight, or as
        many ranges are kept, they count: that bounds the memory.
        """
        archiving, waiting_max = self.counts[ARCHIVING], records_max // 2
        if not archiving or archiving > waiting_max or len(self._ranges) > waiting_max:
            return records_max - (self.end - self.start)
        return records_max - (self.end - self._first_in_flight())

    def _first_in_flight(self) -> Offset:
        """First offset that is neither finished nor a dead letter; the end if there is none. None
        below it becomes anything else again.
        """
        index = max(0, self._index(self._in_flight_from))
        while index < len(self._ranges):
            found = self._ranges[index]
            if not found.is_finished and found.state is not ARCHIVING:
                break
            index += 1
        self._in_flight_from = self._firsts[index] if index < len(self._ranges) else self.end
        return self._in_flight_from

    @property
    def finished_records(self) -> int:
        """Offsets whose delivery is complete."""
        return self.counts[ACKNOWLEDGED] + self.counts[ARCHIVED]

    def _index(self, offset: Offset) -> int:
        return bisect_right(self._firsts, offset) - 1

    def at(self, offset: Offset) -> Range:
        """The range that has an offset of the window."""
        return self._ranges[self._index(offset)]

    def over(self, first: Offset, last: Offset) -> list[Range]:
        """Ranges that have an offset of [first, last], in order."""
        return self._ranges[max(0, self._index(first)) : self._index(last) + 1]

    def append(self, added: Range) -> None:
        """Add a range at the end."""
        assert added.first == self.end, "a window has no gaps"
        self._firsts.append(added.first)
        self._ranges.append(added)
        self.counts[added.state] += added.last - added.first + 1
        self.end = Offset(added.last + 1)

    def extend(self, last: Offset) -> None:
        """Let the last range, and the window, end at a later offset."""
        extended = self._ranges[-1]
        self.counts[extended.state] += last - extended.last
        if extended.lock is not None:
            extended.lock.hold(Offset(extended.last + 1), last)
        extended.last = last
        self.end = Offset(last + 1)

    def carve(self, first: Offset, last: Offset) -> list[Range]:
        """Ranges that cover exactly [first, last]: those at its ends are cut where need be."""
        index = self._index(first)
        found = self._ranges[index]
        if found.first == first and found.last == last:
            return [found]
        if found.first < first:
            self._cut(index, first)
            index += 1
        last_index = self._index(last)
        if self._ranges[last_index].last > last:
            self._cut(last_index, Offset(last + 1))
        return self._ranges[index : last_index + 1]

    def _cut(self, index: int, at: Offset) -> None:
        whole = self._ranges[index]
        assert whole.transition is None, "what is being written stays as it is"
        rest = Range(at, whole.last, whole.state, whole.count, whole.lock)
        rest.ready_at = whole.ready_at
        rest.portion = whole.portion
        rest.unseen = whole.unseen
        whole.last = Offset(at - 1)
        self._firsts.insert(index + 1, at)
        self._ranges.insert(index + 1, rest)

    def become(self, moved: Range, state: DeliveryState) -> None:
        """Change the state of a whole range; leaving ACQUIRED ends its part of the lock."""
        if self.order is not None and state is not ACQUIRED:
            self.order.left(moved.first, moved.last, moved.state, state)
        records = moved.last - moved.first + 1
        self.counts[moved.state] -= records
        self.counts[state] += records
        moved.state = state
        if moved.lock is not None and state is not ACQUIRED:
            moved.lock.records -= records
            moved.lock = None
        moved.portion = 0
        if state is AVAILABLE and moved.first < self._available_from:
            self._available_from = moved.first

    def join(self, joined: Range) -> None:
        """Let a range and its neighbours be one where they share everything."""
        index = self._index(joined.first)
        if index < 0 or self._ranges[index] is not joined:
            return  # already part of a neighbour, or no longer in the window
        if index + 1 < len(self._ranges):
            self._join_at(index + 1)
        if index:
            self._join_at(index)

    def _join_at(self, index: int) -> None:
        before, after = self._ranges[index - 1], self._ranges[index]
        if (
            before.state is not after.state
            or before.count != after.count
            or before.unseen != after.unseen
            or before.lock is not after.lock
            or before.transition is not None
            or after.transition is not None
            or before.ready_at != after.ready_at
            or (before.state is AVAILABLE and before.count >= self.isolated_from)
        ):
            return
        before.last = after.last
        del self._firsts[index]
        del self._ranges[index]

    def advance(self) -> bool:
        """Let the window begin at the first record that is not finished. True if it moved."""
        passed = 0
        for one in self._ranges:
            if one.state not in TERMINAL_STATES:
                break
            passed += 1
            self.counts[one.state] -= one.last - one.first + 1
        if not passed:
            return False
        self.start = self._ranges[passed].first if passed < len(self._ranges) else self.end
        self._drop(passed)
        return True

    def cut_below(self, start: Offset) -> None:
        """Forget every record below an offset: the log has it no longer."""
        passed = 0
        for dropped in self._ranges:
            if dropped.first >= start:
                break
            gone_last = min(dropped.last, Offset(start - 1))
            gone = gone_last - dropped.first + 1
            self.counts[dropped.state] -= gone
            if self.order is not None:
                self.order.left(dropped.first, gone_last, dropped.state, ARCHIVED)
            if dropped.lock is not None:
                dropped.lock.records -= gone
            if dropped.last >= start:
                dropped.first = self._firsts[passed] = start
                break
            dropped.lock = dropped.transition = None
            passed += 1
        self.start = start
        self.end = max(self.end, start)
        self._drop(passed)

    def _drop(self, passed: int) -> None:
        del self._firsts[:passed]
        del self._ranges[:passed]
        self._available_from = max(self._available_from, self.start)

    def first_available(self, now: InstantMs) -> int:
        """Index of the first range that may be delivered; ``len(self)`` if there is none."""
        index = max(0, self._index(self._available_from))
        ranges = self._ranges
        while index < len(ranges):
            found = ranges[index]
            if found.state is AVAILABLE and found.ready_at <= now:
                self._available_from = found.first
                return index
            index += 1
        self._available_from = self.end
        return index

    def first_takeable(self, now: InstantMs, member: str) -> Offset | None:
        """First record that its key allows a member to acquire, or whose key is not known; None if
        there is none.
        """
        assert self.order is not None, "records have an order"
        for one in self._ranges[self.first_available(now) :]:
            if one.state is AVAILABLE and one.ready_at <= now:
                for number in range(one.first, one.last + 1):
                    if self.order.may_take(Offset(number), member):
                        return Offset(number)
        return None

    def available_run(self, now: InstantMs) -> tuple[Offset, Offset] | None:
        """First and last offset of the first records that may be delivered together."""
        if not self.counts[AVAILABLE]:
            return None
        index = self.first_available(now)
        if index == len(self._ranges):
            return None
        first = self._ranges[index].first
        while index < len(self._ranges):
            following = self._ranges[index]
            if following.state is not AVAILABLE or following.ready_at > now:
                break
            last = following.last
            index += 1
        return first, last

    def look_again_from(self, offset: Offset) -> None:
        """The delay of a record there is over."""
        self._available_from = max(self.start, min(self._available_from, offset))

    def check(self) -> None:
        """Assert every invariant."""
        offset = self.start
        counts = [0] * len(DeliveryState)
        assert len(self._firsts) == len(self._ranges), "two lists of the same ranges"
        for first, one in zip(self._firsts, self._ranges, strict=True):
            assert first == one.first, "found by its first offset"
            assert one.first == offset, "no gap and no overlap"
            assert one.last >= one.first, "no range is empty"
            assert (one.lock is not None) == (one.state is ACQUIRED), str(one)
            assert one.transition is None or one.state is ACQUIRED, str(one)
            counts[one.state] += one.records
            offset = Offset(one.last + 1)
        assert offset == self.end, "ranges end where the window ends"
        assert counts == self.counts, (counts, self.counts)
        if self.order is not None:
            self.order.check()
