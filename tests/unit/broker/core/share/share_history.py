"""Random histories of one share-partition: its leaders one after the other, its log, its members,
and the coordinator that keeps its state. After each step it is compared with its plain twin.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

from broker.core.share.acknowledgement import AcknowledgementBatch
from broker.core.share.acquisition import AcquireMode, LogBatch, LogRead, ReadPlan, Wanted
from broker.core.share.answers import Settled
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import SharePartition
from broker.core.share.window import NEVER
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    SharePartitionKey,
    StateEpoch,
    StateRead,
    TransactionKey,
    WriteState,
)
from unit.broker.core.share.plain_share_partition import (
    ACCEPT,
    FINISHED,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    PlainCoordinator,
    PlainSharePartition,
)

KEY = SharePartitionKey("billing", TopicId(bytes(16)), 0)
MEMBERS = ("m1", "m2", "m3")
KINDS = (ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW, GAP)
AFTER_COMMIT = (*FINISHED, DeliveryState.ARCHIVING)
WRITTEN, OPEN, DONE, REFUSED, ANSWER_LOST, LATE = range(6)
"""Fate of a write: done and answered; still open; done and still open; not done; done, or done
later, without an answer.
"""
FATES = (WRITTEN, WRITTEN, WRITTEN, OPEN, OPEN, DONE, DONE, REFUSED, ANSWER_LOST, LATE)


class ShareHistory:
    """One history. ``seen`` counts what it came across, so that a test can say what it reaches."""

    def __init__(self, seed: int, *, is_key_ordered: bool = False) -> None:
        self.dice = Random(seed)
        self.settings = ShareSettings(
            deliveries_max=self.dice.randint(2, 6),
            lock_ms=50,
            unseen_max=self.dice.choice((0, 1, 3, 50)),
            records_max=self.dice.choice((1, 5, 12, 40)),
            release_backoff_ms=self.dice.choice((0, 0, 7)),
            release_backoff_max_ms=40,
            has_dead_letters=self.dice.random() < 0.3,
            is_key_ordered=is_key_ordered,
            write_retry_ms=5,
        )
        self.now = 0
        self.log: list[LogBatch] = []
        self.keys: dict[Offset, int | None] = {}
        self.log_start = self.log_end = 0
        self.coordinator = PlainCoordinator()
        self.leader_epoch = 0
        self.late: list[WriteState] = []
        self.under_way: WriteState | None = None
        self.refused: set[TransactionKey] | None = None
        """Answer to the write under way, once it is done."""
        self.said: dict[int, list[tuple[int, int]]] = {}
        """By request: offset and type."""
        self.done: set[int] = set()
        """Accepted or rejected, and the member was told that it holds."""
        self.letters: set[int] = set()
        self.epochs = {1: ProducerEpoch(0), 2: ProducerEpoch(0)}
        """By producer: of its open transaction."""
        self.transaction_of: dict[int, TransactionKey | None] = {}
        self.told: dict[TransactionKey, set[int]] = {}
        """Acknowledged in an open transaction, and the member was told so."""
        self.over: dict[TransactionKey, bool] = {}
        self.last_start = 0
        self.seen: Counter[str] = Counter()
        self.load()

    def run(self, steps: int) -> "ShareHistory":
        """Random steps; then all members are well, and every record ends."""
        rules: list[tuple[Callable[[], None], int]] = [
            (self.append, 4),
            (self.compact, 1),
            (self.move_log_start, 1),
            (self.pass_time, 3),
            (self.fetch, 8),
            (self.acknowledge_what_is_held, 8),
            (self.acknowledge_anything, 2),
            (self.lose_session, 1),
            (self.write, 8),
            (self.apply_late_write, 2),
            (self.copy_letter, 2),
            (self.acknowledge_in_transaction, 2),
            (self.end_transaction, 2),
            (self.change_leader, 1),
        ]
        steps_taken = self.dice.choices(
            [rule for rule, _ in rules], [weight for _, weight in rules], k=steps
        )
        for step in steps_taken:
            step()
            self.check()
        self.drain()
        return self

    # -- the world around

    def load(self) -> None:
        self.leader_epoch += 1
        self.share = SharePartition(KEY, LeaderEpoch(self.leader_epoch), self.settings)
        self.share.begin_load()
        batches = self.coordinator.batches()
        start = Offset(self.coordinator.start)
        pending = self.coordinator.pending_batches()
        read = StateRead(KEY, ErrorCode.NONE, StateEpoch(1), start, batches, pending)
        answer = self.share.loaded(read, log_start=Offset(self.log_start), reset_start=Offset(0))
        assert answer.error_code is ErrorCode.NONE
        self.plain = PlainSharePartition(self.settings, max(start, self.log_start), self.keys)
        self.plain.load(batches, pending)
        self.seen["pending after a change of leader"] += bool(pending)
        self.seen["gap after a change of leader"] += any(
            one.count == 0 for one in self.plain.records.values()
        )
        self.last_start = max(start, self.log_start)
        self.under_way = self.refused = None
        self.said.clear()
        self.letters.clear()
        self.take_letters()

    def change_leader(self) -> None:
        settled = self.share.fence()
        assert settled.answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.load()

    def append(self) -> None:
        first = self.log_end + self.dice.choice((0, 0, 0, 1, 3))
        last = first + self.dice.randint(0, 11)
        keys: dict[Offset, int | None] = {
            Offset(offset): self.dice.choice((None, 1, 2, 3))
            for offset in range(first, last + 1)
            if self.dice.random() < 0.9
        }
        has_records = self.dice.random() < 0.8
        self.keys.update(keys)
        self.log.append(LogBatch(Offset(first), Offset(last), has_records, keys))
        self.log_end = last + 1

    def compact(self) -> None:
        if len(self.log) > 1:
            del self.log[self.dice.randrange(len(self.log) - 1)]

    def move_log_start(self) -> None:
        self.log_start = min(self.log_start + self.dice.randint(1, 10), self.log_end)
        self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        self.share.log_start_moved(Offset(self.log_start), InstantMs(self.now))
        self.plain.log_start_moved(self.log_start, self.now)

    def pass_time(self, ms: int = 0) -> None:
        self.now += ms or self.dice.randint(1, 40)
        held = self.held()
        self.share.tick(InstantMs(self.now))
        self.plain.tick(self.now)
        self.seen["locks expired"] += self.held() != held
        self.seen["locks expired in a write"] += any(
            one.is_over and one.target is not None for one in self.plain.records.values()
        )

    # -- members

    def fetch(self, member: str = "", batches: int = 0) -> None:
        member = member or self.dice.choice(MEMBERS)
        plan = self.share.plan_read(InstantMs(self.now), member)
        available = self.plain.next_available(self.now, member)
        if plan is None:
            assert available is None
            assert len(self.plain.records) >= self.settings.records_max
            return
        first = self.plain.end if available is None else available
        if self.plain.unread():
            first = self.plain.unread()[0]
        assert plan.first_offset <= first
        assert plan.first_offset == first or self.settings.is_key_ordered, "no key is not known"
        read = self.read(plan, batches or self.dice.randint(1, 4))
        mode = self.dice.choice(list(AcquireMode))
        wanted = Wanted(member, self.dice.randint(1, 30), self.dice.randint(1, 20), mode)
        acquired = self.share.acquire(read, wanted, InstantMs(self.now))
        self.plain.told_end = self.share.window.end
        expected = self.plain.acquire(read, wanted, self.now, acquired)
        taken = [(o, c) for first, last, c in acquired for o in range(first, last + 1)]
        assert taken == expected
        assert not self.done & {offset for offset, _ in taken}, "finished is finished"
        assert all(count <= self.settings.deliveries_max for _, count in taken)
        self.seen["acquired"] += bool(taken)
        self.seen["isolated"] += any(c > self.settings.isolated_from for _, c in taken)

    def read(self, plan: ReadPlan, batches: int) -> LogRead:
        """As far as planned, up to a number of batches."""
        first, planned_end = plan
        stop = self.log_end if planned_end is None else planned_end
        planned = [b for b in self.log if b.last_offset >= first and b.first_offset < stop]
        found = planned[:batches]
        end = found[-1].last_offset + 1 if found else first
        if found == planned and planned_end is not None:
            end = max(end, planned_end)
        return LogRead(first, Offset(end), found)

    def held(self) -> dict[str, list[int]]:
        """By member: offsets that it may acknowledge."""
        held: dict[str, list[int]] = {}
        for offset, one in self.plain.records.items():
            if one.member and one.target is None and one.transaction is None:
                held.setdefault(one.member, []).append(offset)
        return held

    def acknowledge_what_is_held(self) -> None:
        by_member = self.held()
        if not by_member:
            return
        member = self.dice.choice(sorted(by_member))
        held = set(by_member[member])
        first = last = self.dice.choice(by_member[member])
        longest = self.dice.randint(1, 12)
        while last + 1 in held and last - first + 1 < longest:
            last += 1
        types = [self.dice.choice(KINDS)]
        if self.dice.random() < 0.4:
            types = self.dice.choices(KINDS, k=last - first + 1)
        delay = self.dice.choice((0, 0, 15))
        batch = AcknowledgementBatch(Offset(first), Offset(last), types, delay)
        if self.dice.random() < 0.15:
            batch = batch._replace(types=[RELEASE], is_unseen=True)
        self.acknowledge(member, [batch])

    def acknowledge_anything(self) -> None:
        bounds = sorted(self.dice.sample(range(self.log_end + 8), 4))
        spans = [(bounds[0], bounds[1] - 1), (bounds[2], bounds[3])]
        batches = [
            AcknowledgementBatch(Offset(first), Offset(last), [self.dice.choice(KINDS)])
            for first, last in spans[self.dice.randint(0, 1) :]
        ]
        self.acknowledge(self.dice.choice(MEMBERS), batches)

    def acknowledge_in_transaction(self) -> None:
        by_member = self.held()
        if not by_member:
            return
        producer_id = self.dice.randint(1, 2)
        transaction = TransactionKey(ProducerId(producer_id), self.epochs[producer_id])
        member = self.dice.choice(sorted(by_member))
        offset = Offset(self.dice.choice(by_member[member]))
        kind = self.dice.choice((ACCEPT, ACCEPT, REJECT))
        batch = AcknowledgementBatch(offset, offset, [kind])
        self.acknowledge(member, [batch], transaction)

    def end_transaction(self, *, of_each: bool = False) -> None:
        """Of one of two producers, or of both: their next transactions have another epoch."""
        for producer_id in (1, 2) if of_each else (self.dice.randint(1, 2),):
            key = TransactionKey(ProducerId(producer_id), self.epochs[producer_id])
            self.epochs[producer_id] = ProducerEpoch(key.producer_epoch + 1)
            is_committed = self.dice.random() < 0.5
            held = self.coordinator.end_transaction(key, is_committed=is_committed)
            self.seen["committed" if is_committed else "aborted"] += bool(held)
            told = self.told.pop(key, set())
            if is_committed:
                lost = {o for o in told if self.coordinator.state_of(o) not in AFTER_COMMIT}
                assert not lost, "a commit holds for all"
                self.done |= told
            self.share.end_transaction(key, is_committed=is_committed)
            self.plain.end_transaction(key, is_committed=is_committed)
            self.over[key] = is_committed
        self.take_letters()

    def acknowledge(
        self,
        member: str,
        batches: list[AcknowledgementBatch],
        transaction: TransactionKey | None = None,
    ) -> None:
        request = len(self.said)
        now = InstantMs(self.now)
        answer = self.share.acknowledge(member, batches, request, now, transaction=transaction)
        expected = self.plain.acknowledge(member, batches, self.now, transaction)
        self.transaction_of[request] = transaction
        is_refused = answer is not None and answer.error_code is not ErrorCode.NONE
        assert is_refused == (expected is None), (answer, expected)
        if expected is not None:
            assert (answer is None) == bool(expected), "what is written is answered later"
        self.seen["refused" if is_refused else "acknowledged"] += 1
        self.said[request] = [
            (first + index, types[index] if len(types) > 1 else types[0])
            for first, last, types, *_ in batches
            for index in range(last - first + 1)
            if first + index in (expected or ())
        ]

    def lose_session(self) -> None:
        member = self.dice.choice(MEMBERS)
        self.share.release(member, InstantMs(self.now))
        self.plain.release(member, self.now)

    # -- writes

    def write(self) -> None:
        fate = self.dice.choice(FATES)
        if self.under_way is None:
            self.begin_write()
        if self.under_way is not None:
            self.end_write(fate)

    def begin_write(self) -> None:
        write = self.under_way = self.share.next_write(InstantMs(self.now))
        if write is None:
            return
        assert self.plain.pending() == {
            offset: (outcome, count, transaction)
            for first, last, outcome, count, transaction, _ in write.pending
            for offset in range(first, last + 1)
        }
        start, finished, states = self.plain.next_write()
        assert write.start_offset == start
        assert write.delivery_complete_count == finished
        assert states == {
            offset: (state, count)
            for first, last, state, count in write.batches
            for offset in range(first, last + 1)
        }

    def end_write(self, fate: int) -> None:
        assert self.under_way is not None
        if fate in (WRITTEN, DONE, ANSWER_LOST) and self.refused is None:
            self.refused = self.coordinator.write(self.under_way)
        elif fate == LATE:
            self.late.append(self.under_way)
        if fate not in (OPEN, DONE):
            code = ErrorCode.NONE if fate == WRITTEN else ErrorCode.REQUEST_TIMED_OUT
            self.settle(code, (self.refused or set()) if fate == WRITTEN else set())

    def apply_late_write(self) -> None:
        if self.late:
            write = self.late.pop(0)
            if write.leader_epoch == self.leader_epoch:
                self.coordinator.write(write)
                self.seen["late write"] += 1

    def settle(self, code: ErrorCode, refused: set[TransactionKey]) -> None:
        settled = self.share.written(code, InstantMs(self.now), refused=refused)
        self.seen["refused transactions"] += bool(settled.refused)
        is_written = code is ErrorCode.NONE
        self.seen["rolled back"] += bool(not is_written and self.plain.moving)
        self.seen["given back late"] += not is_written and any(
            self.plain.records[offset].is_over
            for offset in self.plain.moving & self.plain.records.keys()
        )
        self.plain.written(is_written=is_written, refused=refused)
        for key, is_committed in self.over.items():
            self.plain.end_transaction(key, is_committed=is_committed)
        self.under_way = self.refused = None
        if is_written:
            self.remember(settled)
        self.take_letters()

    def remember(self, settled: Settled) -> None:
        for request in settled.requests:
            assert isinstance(request, int)
            finished = {o for o, kind in self.said[request] if kind in (ACCEPT, REJECT, GAP)}
            transaction = self.transaction_of[request]
            if transaction is None or self.over.get(transaction):
                self.done |= finished
            elif transaction not in self.over:
                self.told.setdefault(transaction, set()).update(finished)

    def take_letters(self) -> None:
        for first, last in self.share.take_dead_letters():
            named = set(range(first, last + 1))
            assert not named & self.letters, "a dead letter is named once"
            self.letters |= named
            durable = {self.coordinator.state_of(offset) for offset in named}
            assert durable <= {DeliveryState.ARCHIVING, *FINISHED}, "or an answer was lost before"
            self.seen["dead letters"] += 1

    def copy_letter(self) -> None:
        if self.letters:
            self.copy(self.dice.choice(sorted(self.letters)))

    def copy(self, offset: int) -> None:
        self.letters.discard(offset)
        if offset >= self.coordinator.start:
            count = self.coordinator.states[offset][1]
            self.coordinator.states[offset] = (DeliveryState.ARCHIVED, count)
        self.share.copied(Offset(offset), Offset(offset))
        self.plain.copied(offset, offset)

    # -- what holds

    def check(self) -> None:
        self.share.check()
        window = self.share.window
        assert (window.start, window.end) == (self.plain.start, self.plain.end)
        assert window.start >= self.last_start, "the start never goes back"
        self.last_start = window.start
        for one in window:
            target = one.transition and one.transition.state
            if one.transition is not None and one.transition.pending is not None:
                _, target = one.transition.pending
            lock = (one.lock.member, one.lock.deadline) if one.lock else ("", 0)
            for offset in range(one.first, one.last + 1):
                twin = self.plain.records[offset]
                assert (one.state, one.count) == (twin.state, twin.count), offset
                assert (twin.target and twin.target[0]) == target, offset
                assert one.ready_at == twin.ready_at, offset
                assert lock == (twin.member, twin.deadline or (NEVER if twin.transaction else 0))
                pending = one.lock.pending if one.lock else None
                assert pending == (twin.transaction and (twin.transaction, twin.outcome)), offset
        self.check_deadlines()
        if self.settings.is_key_ordered:
            self.check_keys()

    def check_deadlines(self) -> None:
        records = self.plain.records.values()
        dues = [one.deadline for one in records if one.deadline and not one.is_over]
        dues += [one.ready_at for one in records if one.ready_at > self.now]
        due = self.share.next_deadline()
        assert not dues or (due is not None and due <= min(dues)), (due, dues)

    def check_keys(self) -> None:
        """No two members hold one key."""
        holders: dict[int, str] = {}
        for offset, one in self.plain.records.items():
            key = self.keys.get(Offset(offset))
            if one.member and key is not None:
                assert holders.setdefault(key, one.member) == one.member, (offset, key)

    def drain(self) -> None:
        """Every record ends acknowledged or archived once members accept what they get."""
        for _ in range(2_000):
            if self.is_drained():
                break
            self.end_transaction(of_each=True)
            self.pass_time(51)
            self.fetch(MEMBERS[0], batches=5)
            spans = [(one.first, one.last) for one in self.share.window if one.lock]
            for first, last in spans:
                batch = AcknowledgementBatch(first, last, [ACCEPT])
                self.acknowledge(self.plain.records[first].member, [batch])
            if self.under_way is not None:
                self.end_write(WRITTEN)
            self.begin_write()
            if self.under_way is not None:
                self.end_write(WRITTEN)
            for offset in sorted(self.letters):
                self.copy(offset)
        assert self.is_drained(), str(self.share)
        self.check()

    def is_drained(self) -> bool:
        is_read = not any(b.last_offset >= self.share.window.end for b in self.log)
        return is_read and not len(self.share.window)
