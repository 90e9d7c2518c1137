"""ShareHistory: what brokers and members of a share group do to each record, and the promises.

Three views meet here: that of the brokers (windows that are loaded, records that are acquired,
acknowledgements that are taken), that of the durable state (``ShareStateLog``), and that of the
members (answers). Each window is a term of its own: locks die with it. Deliveries count for one
state epoch: a reset forgets them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.core.share.acknowledgement import AcknowledgeType
from tidemark.model.share_state import (
    TERMINAL_STATES,
    DeliveryState,
    SharePartitionKey,
    TransactionKey,
)

from sim.checkers import require
from sim.cluster.share_give_backs import GiveBacks
from sim.cluster.share_letters import Letters
from sim.cluster.share_transactions import Transactions

FINISHING = {AcknowledgeType.ACCEPT, AcknowledgeType.REJECT}


class Loss(NamedTuple):
    """A log that has lost its end."""

    leader_epoch: int
    """Epoch of the leader that was elected without it."""
    end: int


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
    in_transactions: dict[int, dict[TransactionKey, AcknowledgeType]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Acknowledgements that a broker has taken within transactions."""
    pending: dict[int, TransactionKey] = field(default_factory=dict)
    """Offsets whose member was told that their acknowledgement is pending."""
    finished: set[int] = field(default_factory=set)
    """Offsets that are finished or dead letters in the durable state, besides those before the
    start.
    """
    start: int = 0
    """Start in the durable state."""


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
    members: dict[int, str] = field(default_factory=dict)
    """Member that each offset was delivered to last."""
    give_backs: GiveBacks = field(default_factory=lambda: GiveBacks(0))


@dataclass
class ShareHistory:
    """All share-partitions of one run."""

    limit: int
    """Greatest delivery count."""
    letters: Letters = field(default_factory=Letters)
    deliveries: dict[tuple[SharePartitionKey, int], Deliveries] = field(
        default_factory=lambda: defaultdict(Deliveries)
    )
    epochs: dict[SharePartitionKey, int] = field(default_factory=dict)
    leaders: dict[SharePartitionKey, int] = field(default_factory=dict)
    """Highest epoch of a leader that has read the state."""
    losses: dict[SharePartitionKey, list[Loss]] = field(default_factory=lambda: defaultdict(list))
    transactions: Transactions = field(default_factory=Transactions)
    key_of: Callable[[SharePartitionKey, int], bytes | None] = lambda *_: None
    """Key of a record, if the group orders records by key."""

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
        *,
        is_outranked: bool = False,
    ) -> None:
        """Check the reason for a state that is kept now. ``is_outranked``: a later delivery is
        pending, which the state does not end.
        """
        one = self.deliveries[key, state_epoch]
        where = f"{key}@{offset}"
        require(
            count <= one.attempts[offset],
            "a delivery count has its deliveries",
            f"{where}: {count}, {one.attempts[offset]} deliveries",
        )
        if state is DeliveryState.AVAILABLE:
            return
        if not is_outranked:
            self._is_decided(one, offset, where)
        asked = self._asked(one, offset)
        if state is DeliveryState.ACKNOWLEDGED:
            require(
                AcknowledgeType.ACCEPT in asked,
                "only what a member accepts is acknowledged",
                where,
            )
        elif state in (DeliveryState.ARCHIVED, DeliveryState.ARCHIVING):
            require(
                AcknowledgeType.REJECT in asked or self._is_exhausted(one, offset),
                "only what is rejected, or delivered too often, is archived",
                f"{where}: {one.attempts[offset]} deliveries",
            )
        if state in TERMINAL_STATES or state is DeliveryState.ARCHIVING:
            one.finished.add(offset)

    def is_passed(self, key: SharePartitionKey, state_epoch: int, offset: int) -> None:
        """Check the reason for a start that has passed a record."""
        one = self.deliveries[key, state_epoch]
        where = f"{key}@{offset}"
        self._is_decided(one, offset, where)
        asked = self._asked(one, offset)
        require(
            bool(asked & FINISHING) or self._is_exhausted(one, offset),
            "the start passes finished records only",
            f"{where}: {one.attempts[offset]} deliveries, asked {asked}",
        )

    def starts(self, key: SharePartitionKey, state_epoch: int, start: int) -> None:
        """Record the start of the durable state."""
        self.deliveries[key, state_epoch].start = start

    def loses(self, key: SharePartitionKey, leader_epoch: int, end: int) -> None:
        """Record that an unclean election has left the log up to ``end``."""
        self.losses[key].append(Loss(leader_epoch, end))

    def end_left(self, key: SharePartitionKey, known: int, read: int) -> int | None:
        """Return the end of what a leader of epoch ``read`` has left of the records that one of
        epoch ``known`` had; None: it has them all.
        """
        ends = (one.end for one in self.losses[key] if known < one.leader_epoch <= read)
        return min(ends, default=None)

    def forgets(self, key: SharePartitionKey, state_epoch: int, end: int) -> None:
        """Forget records from ``end`` on: others have their offsets now."""
        one = self.deliveries[key, state_epoch]
        of_offsets: tuple[dict[int, Any], ...] = (
            one.attempts,
            one.asked,
            one.in_transactions,
            one.pending,
        )
        for known in of_offsets:
            for offset in [at for at in known if at >= end]:
                del known[offset]
        one.answered = {at for at in one.answered if at < end}
        one.finished = {at for at in one.finished if at < end}
        one.start = min(one.start, end)

    def _is_decided(self, one: Deliveries, offset: int, where: str) -> None:
        """Check that a record is finished by its open transaction only, and as that has ended."""
        transaction = one.pending.get(offset)
        fate = None if transaction is None else self.transactions.fate(transaction)
        require(
            transaction is None or fate is not None,
            "an open transaction holds its records",
            f"{where}: finished, held by {transaction}",
        )
        kinds = one.in_transactions[offset]
        is_plain = bool(one.asked[offset] & FINISHING) or self._is_exhausted(one, offset)
        require(
            is_plain or not kinds or any(map(self.transactions.fate, kinds)),
            "an aborted transaction's acknowledgements hold none",
            f"{where}: finished, acknowledged by {kinds}",
        )

    def _asked(self, one: Deliveries, offset: int) -> set[AcknowledgeType]:
        """Return acknowledgements outside of transactions, and those of committed ones."""
        committed = {
            kind
            for transaction, kind in one.in_transactions[offset].items()
            if self.transactions.fate(transaction)
        }
        return one.asked[offset] | committed

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
        unseen_max: int = 0,
    ) -> Term:
        """Record that a leader has read the state."""
        self.leaders[key] = max(leader_epoch, self.leaders.get(key, 0))
        give_backs = GiveBacks(unseen_max)
        return Term(key, state_epoch, counts, leader_epoch, give_backs=give_backs)

    def begins_write(self, term: Term) -> None:
        """Record that a leader sends a write."""
        term.is_late = term.leader_epoch < self.leaders[term.key]
        term.give_backs.begins_write()

    def has_written(self, term: Term, *, holds: bool = True) -> None:
        """Check a leader that was told that its write holds."""
        term.give_backs.ends_write(term.counts, holds=holds)
        if not holds:
            return
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
            self._is_free(one, offset, where)
            self._is_in_order(term, member, offset, now)
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
            term.give_backs.delivers(offset, count, now, where)
            term.counts[offset] = count
            one.attempts[offset] += 1
            self.letters.is_delivered((term.key.topic_id, offset), term.state_epoch, count)
            term.locks[offset] = Held(member, now + lock_ms)
            term.members[offset] = member

    def _is_free(self, one: Deliveries, offset: int, where: str) -> None:
        """Check that no transaction holds a record that is delivered."""
        transaction = one.pending.get(offset)
        if transaction is None:
            return
        fate = self.transactions.fate(transaction)
        require(
            fate is not None,
            "an open transaction holds its records",
            f"{where}: delivered, held by {transaction}",
        )
        require(
            not fate,
            "a committed transaction's acknowledgements hold all",
            f"{where}: delivered after {transaction}",
        )
        del one.pending[offset]

    def _is_in_order(self, term: Term, member: str, offset: int, now: int) -> None:
        """Check the records of the same key."""
        key = self.key_of(term.key, offset)
        if key is None:
            return
        where = f"{term.key}@{offset}: {member} at {now}, key {key!r}"
        for other, held in term.locks.items():
            require(
                held.until_ms <= now
                or held.member == member
                or self.key_of(term.key, other) != key,
                "under key order no two members hold one key",
                f"{where}, {other} is held by {held}",
            )
        one = self.deliveries[term.key, term.state_epoch]
        for earlier in range(one.start, offset):
            require(
                earlier in one.finished
                or term.members.get(earlier) == member
                or term.counts.get(earlier, 0) >= self.limit
                or self.key_of(term.key, earlier) != key,
                "under key order the earlier records of a key are finished",
                f"{where}, {earlier} is not",
            )

    def takes(
        self,
        term: Term,
        member: str,
        runs: Iterable[tuple[int, int, AcknowledgeType]],
        transaction: TransactionKey | None = None,
    ) -> None:
        """Check acknowledgements that a broker has taken, within a ``transaction`` or not."""
        one = self.deliveries[term.key, term.state_epoch]
        for first, last, kind in runs:
            for offset in range(first, last + 1):
                held = term.locks.get(offset)
                require(
                    held is not None and held.member == member,
                    "only the holder of a lock acknowledges",
                    f"{term.key}@{offset}: {kind.name} of {member}, {held}",
                )
                if transaction is None:
                    one.asked[offset].add(kind)
                else:
                    one.in_transactions[offset][transaction] = kind
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

    def holds(
        self,
        transaction: TransactionKey,
        key: SharePartitionKey,
        state_epoch: int,
        offsets: Iterable[int],
    ) -> None:
        """Record that a member was told that acknowledgements are pending in its transaction."""
        one = self.deliveries[key, state_epoch]
        one.pending |= dict.fromkeys(offsets, transaction)

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
        """Check that nothing is left. A reset may have set a start beyond the log's end."""
        for key, end in ends.items():
            require(
                starts.get(key, -1) >= end,
                "after healing every record is finished",
                f"{key}: start {starts.get(key)}, end {end}",
            )
