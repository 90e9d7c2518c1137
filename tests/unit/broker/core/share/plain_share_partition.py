"""The plain twin of a share-partition: record by record, slow and obvious."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.core.share.acknowledgement import AcknowledgementBatch
from broker.core.share.acquisition import AcquiredRecords, AcquireMode, LogRead, Wanted
from broker.core.share.settings import ShareSettings
from tidemark.model.ids import Offset
from tidemark.model.share_state import (
    DeliveryState,
    PendingBatch,
    StateBatch,
    TransactionKey,
    WriteState,
)

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
FINISHED = (ACKNOWLEDGED, ARCHIVED)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Written = tuple[DeliveryState, int]


@dataclass
class Record:
    state: DeliveryState = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: int = 0
    is_over: bool = False
    ready_at: int = 0
    target: tuple[DeliveryState, int] | None = None
    is_unseen: bool = False
    """Its release does not count as a delivery."""
    unseen: int = 0
    """Releases that did not count."""
    target_transaction: TransactionKey | None = None
    transaction: TransactionKey | None = None
    outcome: DeliveryState | None = None
    """State that a commit of its transaction gives."""
    holder: str = ""
    """Member that has acknowledged it in a transaction at this leader."""
    key_is: str = "known"
    """Or "unread" at a leader that took it over, or "lost" by compaction."""

    def end(self, state: DeliveryState) -> None:
        self.state, self.member, self.deadline, self.is_over = state, "", 0, False
        self.target = self.target_transaction = self.transaction = self.outcome = None
        self.is_unseen = False

    def hold_by_transaction(self, transaction: TransactionKey, outcome: DeliveryState) -> None:
        self.holder = self.member
        self.end(ACQUIRED)
        self.transaction, self.outcome = transaction, outcome


@dataclass
class PlainSharePartition:
    settings: ShareSettings
    start: int
    keys: Mapping[Offset, int | None]
    records: dict[int, Record] = field(default_factory=dict)
    unwritten: set[int] = field(default_factory=set)
    moving: set[int] = field(default_factory=set)
    """With a transition in the write under way."""
    writing: set[int] = field(default_factory=set)
    """Changed already, and in the write under way."""
    durable: int = -1
    """Start that is written."""
    reaching: int = -1
    """Start of the write under way."""
    told_end: int = 0
    """End of the window after the acquisition under way."""

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def load(self, batches: Sequence[StateBatch], pending: Sequence[PendingBatch] = ()) -> None:
        self.load_states(batches)
        for first, last, outcome, count, transaction, _ in pending:
            for offset in range(self.end, last + 1):
                self.records[offset] = Record()
            for offset in range(max(first, self.start), last + 1):
                one = self.records[offset]
                one.hold_by_transaction(transaction, outcome)
                one.count = count
                one.key_is = "unread"
        self.advance()
        self.durable = self.start

    def load_states(self, batches: Sequence[StateBatch]) -> None:
        for first, last, state, count in batches:
            for offset in range(self.start + len(self.records), first):
                self.records[offset] = Record()
            for offset in range(max(first, self.start), last + 1):
                self.records[offset] = Record(state, count)

    def advance(self) -> None:
        while self.records and self.records[self.start].state in FINISHED:
            del self.records[self.start]
            self.start += 1

    def next_available(self, now: int, member: str) -> int | None:
        ready = (
            offset
            for offset, one in self.records.items()
            if self.is_ready(one, now) and not self.must_wait(offset, member)
        )
        return min(ready, default=None)

    def unread(self) -> list[int]:
        """Records that transactions hold since an earlier leader, which knew their keys."""
        is_asked = self.settings.is_key_ordered
        return [o for o, one in self.records.items() if is_asked and one.key_is == "unread"]

    def must_wait(self, offset: int, member: str) -> bool:
        """For another member with a record of its key, or for an earlier one."""
        key = self.keys.get(Offset(offset))
        if key is None or not self.settings.is_key_ordered:
            return False
        return any(
            (one.state is ACQUIRED and member != (one.holder if one.transaction else one.member))
            or (one.state is AVAILABLE and other < offset)
            for other, one in self.records.items()
            if self.keys.get(Offset(other)) == key and one.key_is != "lost"
        )

    @staticmethod
    def is_ready(one: Record, now: int) -> bool:
        return one.state is AVAILABLE and one.ready_at <= now

    # -- acquire

    def acquire(
        self, read: LogRead, wanted: Wanted, now: int, told: Sequence[AcquiredRecords]
    ) -> list[tuple[int, int]]:
        """Offsets and counts that the member gets. ``told`` says only how many records go together
        where a batch is isolated.
        """
        self.tick(now)
        unread = self.unread()
        if unread:
            shown = {o for b in read.batches for o in range(b[0], b[1] + 1)}
            for offset in unread:
                if read.first_offset <= offset < read.end:
                    self.records[offset].key_is = "known" if offset in shown else "lost"
            return []
        taken: list[tuple[int, int]] = []
        cursor = max(read.first_offset, self.start)
        for first, last, has_records, _ in read.batches:
            if last < cursor:
                continue
            self.leave_out(range(cursor, first))
            cursor = max(cursor, first)
            if len(taken) >= wanted.records_max:
                break
            if has_records:
                if not self.take(range(cursor, last + 1), first, wanted, now, taken, told):
                    break
            else:
                self.leave_out(range(cursor, last + 1))
            cursor = last + 1
        else:
            self.leave_out(range(cursor, read.end))
        self.advance()
        return taken

    def bound(self, offsets: range, batch_first: int, *, is_whole: bool) -> int:
        """Number of records from the start that the window may have after these."""
        bound = self.settings.records_max
        ends_at = max(bound, len(self.records))
        extra = self.before_what_is_in_flight()
        passing = len(offsets) if is_whole and offsets.stop - batch_first <= bound else 0
        if passing and len(self.records) < bound:
            ends_at = bound + passing  # a whole batch may pass the bound
        if extra:
            ends_at = max(ends_at, min(self.told_end - self.start, ends_at + extra + passing))
        return ends_at

    def before_what_is_in_flight(self) -> int:
        """Number of dead letters and finished records at the start, which need not count towards
        the bound. Whether they do depends on ranges: ``told_end`` says it.
        """
        states = [self.records[offset].state for offset in sorted(self.records)]
        if DeliveryState.ARCHIVING not in states:
            return 0
        finished = (DeliveryState.ARCHIVING, ACKNOWLEDGED, ARCHIVED)
        in_flight = [at for at, state in enumerate(states) if state not in finished]
        return min(in_flight, default=len(states))

    def leave_out(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            one = self.records.setdefault(offset, Record())
            if one.state is AVAILABLE:
                one.state = ARCHIVED

    def take(
        self,
        offsets: range,
        batch_first: int,
        wanted: Wanted,
        now: int,
        taken: list[tuple[int, int]],
        told: Sequence[AcquiredRecords],
    ) -> bool:
        """False if nothing follows."""
        is_strict = wanted.mode is AcquireMode.RECORD_LIMIT
        is_whole = not is_strict and not self.settings.is_key_ordered
        ends_at = self.bound(offsets, batch_first, is_whole=is_whole)
        lone = 0
        is_cut = self.settings.is_key_ordered and not self.add_all(offsets, ends_at)
        for offset in offsets:
            if is_strict and len(taken) >= wanted.records_max:
                return False
            one = self.records.get(offset) or self.add(offset, ends_at, is_alone=bool(lone))
            if one is None or (lone and not self.is_ready(one, now)):
                return False
            if not self.is_ready(one, now) or self.gives_up(offset):
                continue
            if self.must_wait(offset, wanted.member) or self.is_missing(offset):
                continue
            if one.count >= self.settings.isolated_from and not lone:
                if taken:
                    return False
                lone = told[0].last_offset - told[0].first_offset + 1
                last_attempt = one.count == self.settings.deliveries_max - 1
                assert lone == 1 or not last_attempt, "the last attempt is alone"
            assert not lone or one.count == told[0].delivery_count - 1, "isolated together"
            one.state, one.count, one.ready_at = ACQUIRED, one.count + 1, 0
            one.member, one.deadline = wanted.member, now + self.settings.lock_ms
            taken.append((offset, one.count))
            if len(taken) == lone:
                return False
        return not (lone or is_cut or (is_strict and len(taken) >= wanted.records_max))

    def add_all(self, offsets: range, ends_at: int) -> bool:
        """Records that may have to wait become part of the window, as far as it has room."""
        new = [offset for offset in offsets if offset not in self.records]
        return all(self.add(offset, ends_at, is_alone=False) for offset in new)

    def is_missing(self, offset: int) -> bool:
        """Where keys are read, offsets without a record are seen."""
        if not self.settings.is_key_ordered or offset in self.keys:
            return False
        self.records[offset].state = ARCHIVED
        return True

    def add(self, offset: int, ends_at: int, *, is_alone: bool) -> Record | None:
        """A record that was never read; None if the window has no room for it."""
        if is_alone or len(self.records) >= ends_at:
            return None
        return self.records.setdefault(offset, Record())

    def gives_up(self, offset: int) -> bool:
        if self.records[offset].count < self.settings.deliveries_max:
            return False
        self.records[offset].state = self.rejected()
        self.unwritten.add(offset)
        return True

    # -- acknowledge, release, time

    def acknowledge(
        self,
        member: str,
        batches: Sequence[AcknowledgementBatch],
        now: int,
        transaction: TransactionKey | None = None,
    ) -> list[int] | None:
        """Offsets that are to be written; None if all is refused."""
        self.tick(now)
        said = {
            first + index: (types[index] if len(types) > 1 else types[0], delay_ms, is_unseen)
            for first, last, types, delay_ms, is_unseen in batches
            for index in range(last - first + 1)
            if first + index >= self.durable or transaction is not None
        }
        for offset in said:
            one = self.records.get(offset)
            if one is None or one.state is not ACQUIRED or one.target or one.transaction:
                return None
            if one.member != member:
                return None
        for offset, (kind, delay_ms, is_unseen) in said.items():
            one = self.records[offset]
            self.say(one, kind, delay_ms, now)
            one.is_unseen = is_unseen and one.unseen < self.settings.unseen_max
            if one.is_unseen:
                one.target = (AVAILABLE, 0)
            self.records[offset].target_transaction = transaction
        return [offset for offset, (kind, *_) in said.items() if kind != RENEW]

    def say(self, one: Record, kind: int, delay_ms: int, now: int) -> None:
        if kind == RENEW:
            one.deadline = now + self.settings.lock_ms
        elif kind == ACCEPT:
            one.target = (ACKNOWLEDGED, 0)
        elif kind == GAP:
            one.target = (ARCHIVED, 0)
        elif kind == REJECT or one.count >= self.settings.deliveries_max:
            one.target = (self.rejected(), 0)
        else:
            delay = self.settings.delay_ms(delay_ms, one.count)
            one.target = (AVAILABLE, now + delay if delay else 0)

    def rejected(self) -> DeliveryState:
        return DeliveryState.ARCHIVING if self.settings.has_dead_letters else ARCHIVED

    def give_back(self, offset: int) -> None:
        one = self.records[offset]
        is_exhausted = one.count >= self.settings.deliveries_max
        one.end(self.rejected() if is_exhausted else AVAILABLE)
        self.unwritten.add(offset)

    def release(self, member: str, now: int) -> None:
        self.tick(now)
        for offset, one in self.records.items():
            if one.state is ACQUIRED and one.member == member:
                one.is_over = True
                if one.target is None:
                    self.give_back(offset)
        self.advance()

    def tick(self, now: int) -> None:
        for offset, one in self.records.items():
            if one.state is ACQUIRED and one.transaction is None and one.deadline <= now:
                one.is_over = True
                if one.target is None:
                    self.give_back(offset)
        self.advance()

    def log_start_moved(self, log_start: int, now: int) -> None:
        self.durable = max(self.durable, log_start)
        if log_start <= self.start:
            return
        self.tick(now)
        log_start = max(log_start, self.start)
        self.records = {o: one for o, one in self.records.items() if o >= log_start}
        self.start = log_start
        self.advance()

    def copied(self, first: int, last: int) -> None:
        for offset in range(max(first, self.start), last + 1):
            if self.records[offset].state is DeliveryState.ARCHIVING:
                self.records[offset].state = ARCHIVED
        self.advance()

    def end_transaction(self, transaction: TransactionKey, *, is_committed: bool) -> None:
        for offset, one in self.records.items():
            if one.transaction == transaction and one.target is None:
                if is_committed and one.outcome is not None:
                    one.end(one.outcome)
                else:
                    self.give_back(offset)
        self.advance()

    # -- writes

    def next_write(self) -> tuple[int, int, dict[int, Written]]:
        """Start, finished records and states by offset."""
        after = {offset: self.after(one) for offset, one in self.records.items()}
        self.moving = {offset for offset, one in self.records.items() if one.target is not None}
        held = {o for o, one in self.records.items() if one.transaction or one.target_transaction}
        start = self.start
        while start in after and after[start][0] in FINISHED:
            start += 1
        finished = sum(o >= start and one[0] in FINISHED for o, one in after.items())
        changed = {
            offset
            for offset, one in self.records.items()
            if one.target is not None
            or (offset in self.unwritten and after[offset] != (AVAILABLE, 0))
        }
        changed -= held
        self.writing, self.unwritten = self.unwritten, set()
        self.reaching = start
        return start, finished, {o: after[o] for o in sorted(changed) if o >= start}

    @staticmethod
    def after(one: Record) -> Written:
        if one.target is not None and one.target_transaction is None:
            return one.target[0], one.count - one.is_unseen
        if one.state is ACQUIRED:
            return AVAILABLE, one.count - 1
        return one.state, one.count

    def pending(self) -> dict[int, tuple[DeliveryState, int, TransactionKey]]:
        """Of the next write: outcomes by offset."""
        return {
            offset: (one.target[0], one.count, one.target_transaction)
            for offset, one in self.records.items()
            if one.target is not None and one.target_transaction is not None
        }

    def written(
        self, *, is_written: bool, refused: Collection[TransactionKey] = frozenset()
    ) -> None:
        self.unwritten |= set() if is_written else self.writing
        self.durable = max(self.durable, self.reaching) if is_written else self.durable
        for offset in self.moving & self.records.keys():
            one = self.records[offset]
            target, one.target = one.target, None
            transaction, one.target_transaction = one.target_transaction, None
            holds = is_written and transaction not in refused
            if holds and target is not None and transaction is not None:
                one.hold_by_transaction(transaction, target[0])
            elif holds and target is not None:
                one.count -= one.is_unseen
                one.unseen += one.is_unseen
                one.end(target[0])
                one.ready_at = target[1] if target[0] is AVAILABLE else 0
            elif one.is_over:
                self.give_back(offset)
            one.is_unseen = False
        self.moving, self.writing = set(), set()
        self.advance()


@dataclass
class PlainCoordinator:
    """State of one share-partition, offset by offset."""

    start: int = 0
    states: dict[int, Written] = field(default_factory=dict)
    pending: dict[int, tuple[DeliveryState, int, TransactionKey, DeliveryState]] = field(
        default_factory=dict
    )
    ended: set[TransactionKey] = field(default_factory=set)

    def write(self, write: WriteState) -> set[TransactionKey]:
        """The transactions that are refused."""
        refused = {batch.transaction for batch in write.pending if not self.may_be_pending(batch)}
        for first, last, outcome, count, transaction, before in write.pending:
            if transaction not in refused:
                for offset in range(first, last + 1):
                    self.pending[offset] = (outcome, count, transaction, before)
        self.overlay(write.batches)
        self.start = max(self.start, write.start_offset)
        self.states = {o: one for o, one in self.states.items() if o >= self.start}
        self.pending = {o: one for o, one in self.pending.items() if o >= self.start}
        return refused

    def may_be_pending(self, batch: PendingBatch) -> bool:
        """Its transaction is open, its records are not finished or delivered since, nor pending in
        another transaction. In the order of (delivery count, state) it counts as ACQUIRED; dead
        letters, which all have to be that, come right after ARCHIVING.
        """
        offsets = range(max(batch.first_offset, self.start), batch.last_offset + 1)
        letter = (DeliveryState.ARCHIVING, batch.delivery_count)
        is_letter = batch.before is DeliveryState.ARCHIVING
        if is_letter and any(self.states.get(offset) != letter for offset in offsets):
            return False
        pending = [self.pending[offset] for offset in offsets if offset in self.pending]
        return (
            batch.transaction not in self.ended
            and batch.first_offset >= self.start
            and all(
                is_letter or (count, state) < (batch.delivery_count, ACQUIRED)
                for state, count in (self.states.get(offset, (AVAILABLE, -1)) for offset in offsets)
            )
            and all(
                key == batch.transaction or count < batch.delivery_count
                for _, count, key, _ in pending
            )
        )

    def overlay(self, batches: Sequence[StateBatch]) -> None:
        for first, last, state, count in batches:
            for offset in range(first, last + 1):
                before = self.states.get(offset, (AVAILABLE, -1))
                self.states[offset] = max(before, (state, count), key=lambda one: (one[1], one[0]))
                pending = self.pending.get(offset)
                if pending is not None and (pending[1], pending[3]) < (count, state):
                    del self.pending[offset]

    def end_transaction(self, transaction: TransactionKey, *, is_committed: bool) -> set[int]:
        """Offsets that it held."""
        self.ended.add(transaction)
        held = {o for o, (_, _, key, _) in self.pending.items() if key == transaction}
        for offset in held:
            outcome, count, _, before = self.pending.pop(offset)
            given_back = AVAILABLE if before is ACQUIRED else before
            state = outcome if is_committed else given_back
            self.overlay([StateBatch(Offset(offset), Offset(offset), state, count)])
        return held

    def pending_batches(self) -> tuple[PendingBatch, ...]:
        return tuple(
            PendingBatch(Offset(offset), Offset(offset), *one)
            for offset, one in sorted(self.pending.items())
        )

    def state_of(self, offset: int) -> DeliveryState:
        return ARCHIVED if offset < self.start else self.states[offset][0]

    def batches(self) -> tuple[StateBatch, ...]:
        kept: list[StateBatch] = []
        for offset, (state, count) in sorted(self.states.items()):
            if offset in self.pending:
                continue
            if kept and kept[-1][1:] == (offset - 1, state, count):
                kept[-1] = kept[-1]._replace(last_offset=offset)  # type: ignore[arg-type]
            else:
                kept.append(StateBatch(offset, offset, state, count))  # type: ignore[arg-type]
        return tuple(kept)
