"""Order of records of one key among the members of a group (``share.record.order=key``).

A record may be acquired by a member if no other member holds a record of its key, and no earlier
one of its key is available. So a member may hold several records of a key, in order; a record that
is given back comes before later ones of its key; records of other keys go on. Keys are known by
hashes: two keys of one hash wait for each other without need, and nothing else.
"""

from bisect import bisect_left, insort

from tidemark.model.ids import Offset
from tidemark.model.share_state import DeliveryState

from broker.core.share.states import ACQUIRED, AVAILABLE


class _Key:
    """Records of one key that are not finished."""

    __slots__ = ("available", "held", "holder")

    def __init__(self) -> None:
        self.available: list[Offset] = []
        """In order."""
        self.held = 0
        self.holder = ""
        """Member that holds ``held`` records."""


class KeyOrder:
    """Invariant: every record of a window that a read has shown, that has a key and that is neither
    finished nor a dead letter, is held or available under its key. Reads begin at or before the
    first available record that none has shown: whatever is before a record is known.
    """

    def __init__(self) -> None:
        self._hashes: dict[Offset, int] = {}
        self._keys: dict[int, _Key] = {}
        self._unread: list[tuple[Offset, Offset]] = []
        """Spans that transactions hold since an earlier leader: their keys are to be read."""

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, offset: Offset) -> bool:
        return offset in self._hashes

    def learn(self, offset: Offset, key_hash: int) -> None:
        """Note the key of an available record."""
        if offset not in self._hashes:
            self._hashes[offset] = key_hash
            key = self._keys.setdefault(key_hash, _Key())
            insort(key.available, offset)

    def must_read(self, first: Offset, last: Offset) -> None:
        """Note records that are held by a transaction and whose keys no read has shown."""
        self._unread.append((first, last))

    def unread(self, start: Offset) -> tuple[Offset, Offset] | None:
        """Begin and end of what a read must show before anything is acquired; None if all keys
        are known. ``start``: the window's.
        """
        self._unread = [(max(first, start), last) for first, last in self._unread if last >= start]
        if not self._unread:
            return None
        return self._unread[0][0], Offset(self._unread[-1][1] + 1)

    def was_read(self, first: Offset, end: Offset) -> None:
        """Note that a read has shown all keys of [first, end)."""
        while self._unread and first <= self._unread[0][0] < end:
            _, last = self._unread.pop(0)
            if last >= end:
                self._unread.insert(0, (end, last))

    def learn_held(self, offset: Offset, key_hash: int) -> None:
        """Note the key of a record that a transaction holds."""
        if offset not in self._hashes:
            self._hashes[offset] = key_hash
            self._keys.setdefault(key_hash, _Key()).held += 1

    def may_take(self, offset: Offset, member: str) -> bool:
        """Return True if a member may acquire an available record; always for one without a key."""
        key_hash = self._hashes.get(offset)
        if key_hash is None:
            return True
        key = self._keys[key_hash]
        return key.available[0] == offset and (not key.held or key.holder == member)

    def take(self, offset: Offset, member: str) -> None:
        """Note that a member acquires a record, which it may."""
        key_hash = self._hashes.get(offset)
        if key_hash is not None:
            key = self._keys[key_hash]
            del key.available[0]
            key.held += 1
            key.holder = member

    def left(
        self, first: Offset, last: Offset, before: DeliveryState, after: DeliveryState
    ) -> None:
        """Note that records have moved from one state: held ones were given back or finished,
        available ones were archived.
        """
        for number in range(first, last + 1):
            offset = Offset(number)
            key_hash = self._hashes.get(offset)
            if key_hash is None:
                continue
            key = self._keys[key_hash]
            if before is ACQUIRED:
                key.held -= 1
                if after is AVAILABLE:
                    insort(key.available, offset)
                    continue
            elif before is AVAILABLE:
                del key.available[bisect_left(key.available, offset)]
            del self._hashes[offset]
            if not key.held and not key.available:
                del self._keys[key_hash]

    def check(self) -> None:
        """Assert the counts."""
        held = sum(key.held for key in self._keys.values())
        available = sum(len(key.available) for key in self._keys.values())
        assert held + available == len(self._hashes), "a record is held or available"
        for key in self._keys.values():
            assert key.available == sorted(key.available), "in order"
            assert key.held or key.available, "a key has records"
