"""ShareHistory: what brokers and members of a share group do to each record, and the promises.

Three views meet here: that of the brokers (windows that are loaded, records that are acquired,
acknowledgements that are taken), that of the durable state (``ShareStateLog``), and that of the
members (answers). Each window is a term of its own: locks die with it. Deliveries count for one
state epoch: a reset forgets them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.core.share.acknowledgement import AcknowledgeType
from tidemark.model.share_state import DeliveryState, SharePartitionKey

from sim.checkers import require

FINISHING = {AcknowledgeType.ACCEPT, AcknowledgeType.REJECT}


class Held(NamedTuple):
    """Lock of a member, in ms of its broker's clock."""

    member: str
    until_ms: int


@dataclass
class Deliveries:
    """One share-partition in one state epoch."""

    attempts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Number of times that an offset was acquired."""
    asked: dict[int, set[AcknowledgeType]] = field(default_factory=lambda: defaultdict(set))
    """Acknowledgements that a broker has taken, whatever became of their write."""
    answered: set[int] = field(default_factory=set)
    """Offsets whose member was told that they are accepted or rejected."""


@dataclass(eq=False)
class Term:
    """One window at one broker, from its load to its end."""

    key: SharePartitionKey
    state_epoch: int
    counts: dict[int, int]
    """Delivery counts that were read."""
    leader_epoch: int = 0
    is_late: bool = False
    """True if its write under way began after a later leader had read the state."""
    locks: dict[int, Held] = field(default_factory=dict)


@dataclass
class ShareHistory:
    """All share-partitions of one run."""

    limit: int
    """Greatest delivery count."""
    deliveries: dict[tuple[SharePartitionKey, int], Deliveries] = field(
        default_factory=lambda: defaultdict(Deliveries)
    )
    epochs: dict[SharePartitionKey, int] = field(default_factory=dict)
    leaders: dict[SharePartitionKey, int] = field(default_factory=dict)
    """Highest epoch of a leader that has read the state."""

    # -- the durable state

    def begins(self, key: SharePartitionKey, state_epoch: int) -> None:
        """Record that a state begins."""
        self.epochs[key] = state_epoch

    def is_written(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        offset: int,
        count: int,
        state: DeliveryState,
    ) -> None:
        """Check the reason for a state that is kept now."""
        one = self.deliveries[key, state_epoch]
        require(
            count <= one.attempts[offset],
            "a delivery count has its deliveries",
            f"{key}@{offset}: {count}, {one.attempts[offset]} deliveries",
        )
        if state is DeliveryState.ACKNOWLEDGED:
            require(
                AcknowledgeType.ACCEPT in one.asked[offset],
                "only what a member accepts is acknowledged",
                f"{key}@{offset}",
            )
        elif state in (DeliveryState.ARCHIVED, DeliveryState.ARCHIVING):
            require(
                AcknowledgeType.REJECT in one.asked[offset] or self._is_exhausted(one, offset),
                "only what is rejected, or delivered too often, is archived",
                f"{key}@{offset}: {one.attempts[offset]} deliveries",
            )

    def is_passed(self, key: SharePartitionKey, state_epoch: int, offset: int) -> None:
        """Check the reason for a start that has passed a record."""
        one = self.deliveries[key, state_epoch]
        require(
            bool(one.asked[offset] & FINISHING) or self._is_exhausted(one, offset),
            "the start passes finished records only",
            f"{key}@{offset}: {one.attempts[offset]} deliveries, asked {one.asked[offset]}",
        )

    def _is_exhausted(self, one: Deliveries, offset: int) -> bool:
        return one.attempts[offset] >= self.limit

    # -- brokers

    def loads(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        counts: dict[int, int],
        *,
        leader_epoch: int = 0,
    ) -> Term:
        """Record that a leader has read the state."""
        self.leaders[key] = max(leader_epoch, self.leaders.get(key, 0))
        return Term(key, state_epoch, counts, leader_epoch)

    def begins_write(self, term: Term) -> None:
        """Record that a leader sends a write."""
        term.is_late = term.leader_epoch < self.leaders[term.key]

    def has_written(self, term: Term) -> None:
        """Check a leader that was told that its write holds."""
        require(
            not term.is_late,
            "a write of an earlier leader does not hold",
            f"{term.key}: leader epoch {term.leader_epoch} after {self.leaders[term.key]}",
        )

    def acquires(
        self, term: Term, member: str, first: int, last: int, count: int, *, now: int, lock_ms: int
    ) -> None:
        """Check a delivery."""
        one = self.deliveries[term.key, term.state_epoch]
        require(1 <= count <= self.limit, "the delivery count is within its limit", count)
        for offset in range(first, last + 1):
            where = f"{term.key}@{offset}"
            require(offset not in one.answered, "an acknowledged record never comes again", where)
            held = term.locks.get(offset)
            require(
                held is None or held.until_ms <= now,
                "a record has one lock",
                f"{where}: {member} at {now}, {held}",
            )
            require(
                count > term.counts.get(offset, 0),
                "every delivery raises the count",
                f"{where}: {count} after {term.counts.get(offset)}",
            )
            term.counts[offset] = count
            one.attempts[offset] += 1
            term.locks[offset] = Held(member, now + lock_ms)

    def takes(
        self, term: Term, member: str, runs: Iterable[tuple[int, int, AcknowledgeType]]
    ) -> None:
        """Check acknowledgements that a broker has taken."""
        one = self.deliveries[term.key, term.state_epoch]
        for first, last, kind in runs:
            for offset in range(first, last + 1):
                held = term.locks.get(offset)
                require(
                    held is not None and held.member == member,
                    "only the holder of a lock acknowledges",
                    f"{term.key}@{offset}: {kind.name} of {member}, {held}",
                )
                one.asked[offset].add(kind)
                del term.locks[offset]

    def renews(
        self, term: Term, member: str, spans: Iterable[tuple[int, int]], until_ms: int
    ) -> None:
        """Record that locks begin again."""
        for first, last in spans:
            for offset in range(first, last + 1):
                if offset in term.locks and term.locks[offset].member == member:
                    term.locks[offset] = Held(member, until_ms)

    def releases(self, term: Term, member: str) -> None:
        """Record that a member's locks are over."""
        term.locks = {at: held for at, held in term.locks.items() if held.member != member}

    def has_closed(self, term: Term, member: str) -> None:
        """Check a broker that has closed a member's session."""
        held = [offset for offset, one in term.locks.items() if one.member == member]
        require(not held, "a session that is closed holds no lock", f"{term.key}@{held}: {member}")

    # -- members

    def answers(self, key: SharePartitionKey, state_epoch: int, offset: int) -> None:
        """Record that a member was told that a record is accepted or rejected."""
        self.deliveries[key, state_epoch].answered.add(offset)

    def is_answered(self, key: SharePartitionKey, state_epoch: int, offset: int) -> bool:
        """Return True if a member was told that a record is accepted or rejected."""
        return offset in self.deliveries[key, state_epoch].answered

    # -- the end

    def ends(
        self, starts: dict[SharePartitionKey, int], ends: dict[SharePartitionKey, int]
    ) -> None:
        """Check that nothing is left."""
        for key, end in ends.items():
            require(
                starts.get(key) == end,
                "after healing every record is finished",
                f"{key}: start {starts.get(key)}, end {end}",
            )
