"""Ledger: what must hold of one replicated partition, computed in the slow and obvious way.

It records every leadership, every state that ZooKeeper holds, every batch as it is committed, every
acknowledgement and every read; each method raises BrokenError for a violation. No method reads from
a broker: test_ledger.py gives each a history that it must reject.

    committed   below the high watermark of some leader: from then on it must exist for ever
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from sim.checkers import require


class Stored(NamedTuple):
    """A batch in some replica's log."""

    first: int
    last: int
    epoch: int
    crc: int
    values: tuple[bytes, ...] = ()


class State(NamedTuple):
    """State of a partition as ZooKeeper holds it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


NO_STATE: Final = State(-1, -1, -1, ())


@dataclass
class Ledger:
    """One partition."""

    name: str
    committed: list[Stored] = field(default_factory=list)
    leaders: dict[int, int] = field(default_factory=dict)
    state: State = NO_STATE
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Values acknowledged with acks=all, and their offsets."""
    once: set[bytes] = field(default_factory=set)
    """Values of idempotent producers: at most once in the log."""
    sent: set[bytes] = field(default_factory=set)
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Offset of each committed value."""
    stable_epoch: int = 0
    stable_end: int = 0
    """Highest last stable offset of any leader: committed records below it were served."""
    delete_asked: int = 0
    """Highest offset below which a client has asked to delete records."""
    deleted_below: int = 0
    """Highest offset below which a leader has answered that records are deleted."""
    has_lost: bool = False
    """True if an unclean election has taken committed records."""
    seen_end: dict[str, int] = field(default_factory=dict)
    """By reader: offset after the last record that it received or that was reported to it."""

    @property
    def end(self) -> int:
        """Offset after the last committed record."""
        return self.committed[-1].last + 1 if self.committed else 0

    # -- leaders and states

    def leads(self, broker: int, leader_epoch: int) -> None:
        """Record that a broker acts as leader in an epoch."""
        known = self.leaders.setdefault(leader_epoch, broker)
        require(
            known == broker,
            "one leader an epoch",
            f"{self.name}: {known} and {broker} in epoch {leader_epoch}",
        )

    def claims_alone(self, broker: int, leader_epoch: int) -> None:
        """Check a broker with leadership and lease, which can acknowledge by itself: no other
        leads.
        """
        state = self.state
        replaced = state.leader not in (-1, broker) and state.leader_epoch > leader_epoch
        require(
            not replaced,
            "nobody acknowledges alone once another may lead",
            f"{self.name}: {broker} in epoch {leader_epoch}, but {state}",
        )

    def stored(self, state: State) -> None:
        """Record a new state in ZooKeeper."""
        before = self.state
        if state == before:
            return  # written again, because the outcome was unknown
        require(
            state.partition_epoch > before.partition_epoch,
            "partition epochs rise",
            f"{self.name}: {state} after {before}",
        )
        require(
            state.leader_epoch >= before.leader_epoch,
            "leader epochs never fall",
            f"{self.name}: {state} after {before}",
        )
        same = state.leader_epoch == before.leader_epoch
        require(
            not same or state.leader == before.leader,
            "a leader epoch has one leader",
            f"{self.name}: {state} after {before}",
        )
        if state.leader >= 0:
            require(state.leader in state.isr, "leaders are in sync", f"{self.name}: {state}")
        self.state = state

    def loses(self, left: Sequence[Stored]) -> int:
        """Record that a replica which has these batches was elected by an unclean election: the
        others are not committed any longer. Return the end of what is left.
        """
        pairs = zip(self.committed, left, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0][:4] == pair[1][:4], pairs))
        self.has_lost = self.has_lost or kept < len(self.committed)
        del self.committed[kept:]
        self.offsets = {value: at for value, at in self.offsets.items() if at < self.end}
        self.acknowledged = {value: at for value, at in self.acknowledged.items() if at < self.end}
        return self.end

    # -- logs

    def commits(self, broker: int, high_watermark: int, batches: Sequence[Stored]) -> None:
        """Record that a leader's high watermark has passed ``batches``: its log from ``end`` on."""
        for batch in batches:
            require(
                batch.first >= self.end,
                "committed offsets are given once",
                f"{self.name}: {batch} of {broker}, committed up to {self.end}",
            )
            for value in batch.values:
                require(value in self.sent, "no record is invented", f"{self.name}: {value!r}")
                twice = value in self.once and value in self.offsets
                require(not twice, "idempotent records are there once", f"{self.name}: {value!r}")
            self.committed.append(batch)
            for number, value in enumerate(batch.values):
                self.offsets.setdefault(value, batch.first + number)
        require(
            self.end == high_watermark,
            "a leader has what it commits",
            f"{self.name}: broker {broker} has HW {high_watermark}, but records up to {self.end}",
        )

    def holds(self, broker: int, log_end: int, *, why: str) -> None:
        """Check that this replica has all that is committed."""
        require(
            log_end >= self.end,
            f"{why} has all that is committed",
            f"{self.name}: broker {broker} ends at {log_end}, committed up to {self.end}",
        )

    def synced(self, broker: int, synced_end: int) -> None:
        """Check that with flush=group a member of the ISR also has it on disk."""
        require(
            synced_end >= self.end,
            "with flush=group what is committed is on disk",
            f"{self.name}: broker {broker} is synced to {synced_end}, committed up to {self.end}",
        )

    def agrees(self, broker: int, batches: Sequence[Stored], *, log_start: int = 0) -> None:
        """Check a replica's whole log: below the committed end it is the committed one."""
        # A log may start within a batch, which it has as a whole.
        below = [batch for batch in batches if log_start <= batch.last < self.end]
        expected = [batch for batch in self.committed if batch.last >= log_start]
        for mine, theirs in zip(expected, below, strict=False):
            require(
                mine[:4] == theirs[:4],
                "logs agree below the high watermark",
                f"{self.name}: broker {broker} has {theirs}, committed is {mine}",
            )
        require(
            len(below) >= len(expected),
            "logs agree below the high watermark",
            f"{self.name}: broker {broker} lacks {expected[len(below) :][:1]}",
        )

    def remembers(self, broker: int, producers_end: int, log_end: int) -> None:
        """Check the end of the last batch in the table of producers; the log was truncated to its
        end.
        """
        require(
            producers_end <= log_end,
            "producers are known by what is in the log",
            f"{self.name}: broker {broker} knows batches up to {producers_end} of {log_end}",
        )

    def stable(self, broker: int, leader_epoch: int, last_stable: int, *, is_known: bool) -> None:
        """Record that a leader serves committed records below ``last_stable``.

        ``is_known``: its high watermark is not below any before. A deposed leader without that news
        may be behind.
        """
        is_newest = leader_epoch >= self.stable_epoch
        require(
            not (is_known and is_newest) or last_stable >= self.stable_end,
            "the last stable offset never goes back",
            f"{self.name}: {last_stable} at broker {broker}, {self.stable_end} before",
        )
        self.stable_epoch = max(self.stable_epoch, leader_epoch)
        self.stable_end = max(self.stable_end, last_stable)

    # -- clients

    def sends(self, value: bytes, *, once: bool) -> None:
        """Record that a producer is about to send a value, possibly more than once."""
        self.sent.add(value)
        if once:
            self.once.add(value)

    def acknowledges(self, value: bytes, offset: int) -> None:
        """Record a producer's acknowledgement with acks=all."""
        self.acknowledged[value] = offset
        require(
            self.offsets.get(value) is not None,
            "what is acknowledged is committed",
            f"{self.name}: {value!r} at {offset}, committed up to {self.end}",
        )
        at = self.offsets[value]
        require(
            value not in self.once or at == offset,
            "an acknowledgement names the record's offset",
            f"{self.name}: {value!r} at {offset}, it is at {at}",
        )

    def reads(self, reader: str, batches: Sequence[Stored], high_watermark: int) -> None:
        """Check batches that a consumer received."""
        for batch in batches:
            require(
                batch.last < high_watermark,
                "nothing beyond the high watermark is served",
                f"{self.name}: {batch}, HW {high_watermark}",
            )
            same = [one for one in self._around(batch.first) if one[:4] == batch[:4]]
            require(
                bool(same),
                "what was read is committed, and stays",
                f"{self.name}: {reader} got {batch}, committed up to {self.end}",
            )
            self.seen_end[reader] = max(self.seen_end.get(reader, 0), batch.last + 1)

    def _around(self, first: int) -> list[Stored]:
        return [one for one in reversed(self.committed) if one.first == first][:1]

    def tells_end(self, reader: str, end: int) -> None:
        """Check a response of ListOffsets(latest)."""
        seen = self.seen_end.get(reader, 0)
        require(
            end >= seen,
            "the high watermark never goes back for a reader",
            f"{self.name}: {reader} had {seen}, and is told {end}",
        )
        self.seen_end[reader] = end

    # -- deletions

    def asks_deletion(self, offset: int) -> None:
        """Record that a client is about to ask for the deletion of records below an offset."""
        self.delete_asked = max(self.delete_asked, offset)

    def deletes(self, offset: int) -> None:
        """Record the answer that records below an offset are deleted."""
        self.deleted_below = max(self.deleted_below, offset)

    def begins(self, broker: int, leader_epoch: int, log_start: int) -> None:
        """Check the log start of a leader, unless it is deposed."""
        is_deposed = leader_epoch < self.state.leader_epoch
        require(
            is_deposed or log_start >= self.deleted_below,
            "what is deleted stays deleted",
            f"{self.name}: broker {broker} begins at {log_start}, deleted below"
            f" {self.deleted_below}",
        )
        require(
            log_start <= self.delete_asked,
            "nothing is deleted unasked",
            f"{self.name}: broker {broker} begins at {log_start}, asked for {self.delete_asked}",
        )

    # -- at the end

    def settles(self, replicas: Sequence[int]) -> None:
        """Check after healing that there is a leader, and that every replica is in the ISR."""
        require(self.state.leader >= 0, "after healing there is a leader", f"{self.name}")
        require(
            set(self.state.isr) == set(replicas),
            "after healing everybody is in sync",
            f"{self.name}: {self.state}, replicas {tuple(replicas)}",
        )

    def ends(self, logs: Mapping[int, Sequence[Stored]], *, log_start: int = 0) -> None:
        """Check all logs at rest: from ``log_start`` on they are equal and have every acknowledged
        value.
        """
        for broker, batches in logs.items():
            self.agrees(broker, batches, log_start=log_start)
        rest = {
            broker: [one for one in batches if one.last >= log_start]
            for broker, batches in logs.items()
        }
        first, *others = rest.items()
        for broker, batches in others:
            require(
                [one[:4] for one in batches] == [one[:4] for one in first[1]],
                "no divergence after healing",
                f"{self.name}: brokers {first[0]} and {broker}",
            )
        there = {value for batch in first[1] for value in batch.values}
        expected = {value for value, at in self.acknowledged.items() if at >= log_start}
        lost = expected - there
        require(not lost, "no acknowledged record is lost", f"{self.name}: {sorted(lost)[:3]}")
