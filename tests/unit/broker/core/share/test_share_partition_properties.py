"""A share-partition against its plain twin, over random reads, acknowledgements, failed writes,
expired locks, lost sessions, changes of leader; and the promises of share groups over all of them.
"""

from broker.core.share.acknowledgement import AcknowledgementBatch
from broker.core.share.acquisition import AcquireMode, LogBatch, LogRead, Wanted
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import Settled, SharePartition
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    SharePartitionKey,
    StateEpoch,
    StateRead,
    WriteState,
)
from unit.broker.core.share.plain_share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    PlainCoordinator,
    PlainSharePartition,
)

KEY = SharePartitionKey("billing", TopicId(bytes(16)), 0)
MEMBERS = ("m1", "m2", "m3")
members = strategies.sampled_from(MEMBERS)
kinds = strategies.sampled_from((ACCEPT, ACCEPT, RELEASE, REJECT, RENEW, GAP))
fates = strategies.sampled_from(
    (
        "written",
        "open",
        "refused",
        "written, but the answer is lost",
        "written later, and the answer is lost",
    )
)


class ShareWorld(RuleBasedStateMachine):
    """One share-partition over its leaders, its log, and the coordinator that keeps its state."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.log: list[LogBatch] = []
        self.log_start = 0
        self.log_end = 0
        self.coordinator = PlainCoordinator()
        self.leader_epoch = 0
        self.late: list[WriteState] = []
        self.under_way: WriteState | None = None
        self.said: dict[int, list[tuple[int, int]]] = {}
        """By request: offset and type."""
        self.done: set[int] = set()
        """Accepted or rejected, and the member was told that it holds."""
        self.letters: set[int] = set()
        self.last_start = 0

    @initialize(
        limit=strategies.integers(2, 6),
        records_max=strategies.integers(1, 40),
        backoff_ms=strategies.sampled_from((0, 0, 7)),
        has_dead_letters=strategies.booleans(),
    )
    def begin(
        self, limit: int, records_max: int, backoff_ms: int, *, has_dead_letters: bool
    ) -> None:
        self.settings = ShareSettings(
            deliveries_max=limit,
            lock_ms=50,
            records_max=records_max,
            release_backoff_ms=backoff_ms,
            release_backoff_max_ms=40,
            has_dead_letters=has_dead_letters,
            write_retry_ms=5,
        )
        for records in (3, 1, 10, 5):
            self.append(records=records, hole=0, has_records=True)
        self.load()

    # -- the world around

    def load(self) -> None:
        self.leader_epoch += 1
        epoch = LeaderEpoch(self.leader_epoch)
        self.share = SharePartition(KEY, epoch, self.settings)
        self.share.begin_load()
        batches = self.coordinator.batches()
        start = Offset(self.coordinator.start)
        read = StateRead(KEY, ErrorCode.NONE, StateEpoch(1), start, batches)
        answer = self.share.loaded(read, log_start=Offset(self.log_start), reset_start=Offset(0))
        assert answer.error_code is ErrorCode.NONE
        self.plain = PlainSharePartition(self.settings, max(start, self.log_start))
        self.plain.load(batches)
        self.last_start = max(start, self.log_start)
        self.under_way = None
        self.said.clear()
        self.letters.clear()
        self.took_letters()

    @rule(
        records=strategies.integers(1, 12),
        hole=strategies.sampled_from((0, 0, 0, 1, 3)),
        has_records=strategies.sampled_from((True, True, True, False)),
    )
    def append(self, records: int, hole: int, *, has_records: bool) -> None:
        first = self.log_end + hole
        self.log_end = first + records
        self.log.append(LogBatch(Offset(first), Offset(self.log_end - 1), has_records))

    @precondition(lambda self: self.log)
    @rule(index=strategies.integers(0, 5))
    def compact(self, index: int) -> None:
        if index < len(self.log) - 1:
            del self.log[index]

    @rule(records=strategies.integers(1, 10))
    def move_log_start(self, records: int) -> None:
        self.log_start = min(self.log_start + records, self.log_end)
        self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        self.share.log_start_moved(Offset(self.log_start), InstantMs(self.now))
        self.plain.log_start_moved(self.log_start, self.now)

    @rule(ms=strategies.integers(1, 60))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.share.tick(InstantMs(self.now))
        self.plain.tick(self.now)

    # -- members

    @rule(
        member=members,
        records=strategies.integers(1, 30),
        batch_records=strategies.integers(1, 20),
        mode=strategies.sampled_from(AcquireMode),
        batches=strategies.integers(1, 5),
    )
    def fetch(
        self, member: str, records: int, batch_records: int, mode: AcquireMode, batches: int
    ) -> None:
        plan = self.share.plan_read(InstantMs(self.now))
        available = self.plain.next_available(self.now)
        assert plan is None or plan.first_offset == (
            self.plain.end if available is None else available
        )
        if plan is None:
            assert available is None
            assert len(self.plain.records) >= self.settings.records_max
            return
        read = self.read(plan.first_offset, batches)
        wanted = Wanted(member, records, batch_records, mode)
        acquired = self.share.acquire(read, wanted, InstantMs(self.now))
        expected = self.plain.acquire(read, wanted, self.now, acquired)
        taken = [(o, c) for first, last, c in acquired for o in range(first, last + 1)]
        assert taken == expected
        assert not self.done & {offset for offset, _ in taken}, "finished is finished"
        assert all(count <= self.settings.deliveries_max for _, count in taken)

    def read(self, first: int, batches: int) -> LogRead:
        found = [batch for batch in self.log if batch.last_offset >= first][:batches]
        end = found[-1].last_offset + 1 if found else first
        return LogRead(Offset(first), Offset(end), found)

    def held(self) -> dict[str, list[int]]:
        """By member: offsets that it may acknowledge."""
        held: dict[str, list[int]] = {}
        for offset, one in self.plain.records.items():
            if one.member and one.target is None:
                held.setdefault(one.member, []).append(offset)
        return held

    @precondition(lambda self: self.held())
    @rule(kind=kinds, data=strategies.data())
    def acknowledge_what_is_held(self, kind: int, data: strategies.DataObject) -> None:
        by_member = self.held()
        member = data.draw(strategies.sampled_from(sorted(by_member)))
        held = by_member[member]
        first = data.draw(strategies.sampled_from(held))
        last = first
        longest = data.draw(strategies.integers(1, 12))
        while last + 1 in held and last - first + 1 < longest:
            last += 1
        types = [kind]
        if data.draw(strategies.booleans()):
            types = [data.draw(kinds) for _ in range(last - first + 1)]
        delay = data.draw(strategies.sampled_from((0, 0, 15)))
        self.acknowledge(member, [AcknowledgementBatch(Offset(first), Offset(last), types, delay)])

    @rule(
        member=members,
        spans=strategies.lists(
            strategies.tuples(strategies.integers(0, 60), strategies.integers(0, 8)), max_size=3
        ),
        kind=kinds,
    )
    def acknowledge_anything(self, member: str, spans: list[tuple[int, int]], kind: int) -> None:
        batches = [AcknowledgementBatch(Offset(f), Offset(f + n), [kind]) for f, n in sorted(spans)]
        before = -1
        for first, last, _, _ in batches:
            if first <= before:
                return
            before = last
        self.acknowledge(member, batches)

    def acknowledge(self, member: str, batches: list[AcknowledgementBatch]) -> None:
        request = len(self.said)
        answer = self.share.acknowledge(member, batches, request, InstantMs(self.now))
        expected = self.plain.acknowledge(member, batches, self.now)
        is_refused = answer is not None and answer.error_code is not ErrorCode.NONE
        assert is_refused == (expected is None), (answer, expected)
        if expected is not None:
            assert (answer is None) == bool(expected), "what is written is answered later"
        self.said[request] = [
            (first + index, types[index] if len(types) > 1 else types[0])
            for first, last, types, _ in batches
            for index in range(last - first + 1)
            if first + index in (expected or ())
        ]

    @rule(
        member=members,
        unseen=strategies.lists(
            strategies.tuples(strategies.integers(0, 60), strategies.integers(0, 8)), max_size=2
        ),
    )
    def lose_session(self, member: str, unseen: list[tuple[int, int]]) -> None:
        spans = [(Offset(f), Offset(f + n)) for f, n in unseen]
        offsets = {offset for f, n in unseen for offset in range(f, f + n + 1)}
        if sum(n + 1 for _, n in unseen) != len(offsets):
            return  # a member names an offset once
        self.share.release(member, InstantMs(self.now), spans)
        self.plain.release(member, self.now, offsets)

    # -- writes

    @precondition(lambda self: self.under_way is None)
    @rule(fate=fates)
    def write(self, fate: str) -> None:
        write = self.share.next_write(InstantMs(self.now))
        if write is None:
            return
        assert self.under_way is None, "one write at a time"
        self.under_way = write
        start, finished, states = self.plain.next_write()
        assert write.start_offset == start
        assert write.delivery_complete_count == finished
        assert states == {
            offset: (state, count)
            for first, last, state, count in write.batches
            for offset in range(first, last + 1)
        }
        self.answer_write(fate)

    @precondition(lambda self: self.under_way is not None)
    @rule(fate=fates)
    def answer_write_later(self, fate: str) -> None:
        self.answer_write(fate)

    def answer_write(self, fate: str) -> None:
        assert self.under_way is not None
        if fate in ("written", "written, but the answer is lost"):
            self.coordinator.write(self.under_way)
        elif fate == "written later, and the answer is lost":
            self.late.append(self.under_way)
        if fate == "written":
            self.settle(ErrorCode.NONE)
        elif fate != "open":
            self.settle(ErrorCode.REQUEST_TIMED_OUT)

    @precondition(lambda self: self.late)
    @rule()
    def apply_late_write(self) -> None:
        write = self.late.pop(0)
        if write.leader_epoch == self.leader_epoch:
            self.coordinator.write(write)

    def settle(self, code: ErrorCode) -> None:
        settled = self.share.written(code, InstantMs(self.now))
        is_written = code is ErrorCode.NONE
        self.plain.written(is_written=is_written)
        self.under_way = None
        self.answer(settled, is_written=is_written)
        self.took_letters()

    def answer(self, settled: Settled, *, is_written: bool) -> None:
        for request in settled.requests:
            assert isinstance(request, int)
            for offset, kind in self.said[request]:
                if is_written and kind in (ACCEPT, REJECT, GAP):
                    self.done.add(offset)

    def took_letters(self) -> None:
        for first, last in self.share.take_dead_letters():
            named = set(range(first, last + 1))
            assert not named & self.letters, "a dead letter is named once"
            self.letters |= named
            durable = {self.coordinator.states[offset][0] for offset in named}
            assert durable == {DeliveryState.ARCHIVING}

    @precondition(lambda self: self.letters)
    @rule(data=strategies.data())
    def copy_letter(self, data: strategies.DataObject) -> None:
        offset = data.draw(strategies.sampled_from(sorted(self.letters)))
        self.letters.discard(offset)
        if offset >= self.coordinator.start:
            count = self.coordinator.states[offset][1]
            self.coordinator.states[offset] = (DeliveryState.ARCHIVED, count)
        self.share.copied(Offset(offset), Offset(offset))
        self.plain.copied(offset, offset)

    @rule()
    def change_leader(self) -> None:
        settled = self.share.fence()
        assert settled.answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.load()

    # -- what holds

    @invariant()
    def agrees_with_its_plain_twin(self) -> None:
        if not self.leader_epoch:
            return
        self.share.check()
        window = self.share.window
        assert (window.start, window.end) == (self.plain.start, self.plain.end)
        for one in window:
            for offset in range(one.first, one.last + 1):
                twin = self.plain.records[offset]
                target = one.transition and one.transition.state
                assert (one.state, one.count) == (twin.state, twin.count), offset
                assert (twin.target and twin.target[0]) == target, offset
                assert one.ready_at == twin.ready_at, offset
                assert (one.lock.member if one.lock else "") == twin.member, offset
                assert (one.lock.deadline if one.lock else 0) == twin.deadline, offset

    @invariant()
    def the_start_never_goes_back(self) -> None:
        if self.leader_epoch:
            start = self.share.window.start
            assert start >= self.last_start
            self.last_start = start

    @invariant()
    def deadlines_are_watched(self) -> None:
        if not self.leader_epoch:
            return
        held = [one for one in self.plain.records.values() if one.deadline and not one.is_over]
        delayed = [one.ready_at for one in self.plain.records.values() if one.ready_at > self.now]
        due = self.share.next_deadline()
        for deadline in [*(one.deadline for one in held), *delayed]:
            assert due is not None
            assert due <= deadline

    def teardown(self) -> None:
        """Every record ends acknowledged or archived once members accept what they get."""
        if not self.leader_epoch:
            return
        for _ in range(5_000):
            if self.share.window.start >= self.log_end or self.is_drained():
                break
            self.pass_time(51)
            self.fetch(MEMBERS[0], 100, 100, AcquireMode.BATCH_OPTIMIZED, 5)
            for first, last in [(one.first, one.last) for one in self.share.window if one.lock]:
                owners = {self.plain.records[first].member}
                batch = AcknowledgementBatch(first, last, [ACCEPT])
                self.acknowledge(owners.pop(), [batch])
            if self.under_way is not None:
                self.answer_write("written")
            self.write("written")
            for offset in list(self.letters):
                self.share.copied(Offset(offset), Offset(offset))
                self.plain.copied(offset, offset)
            self.letters.clear()
        assert self.is_drained(), str(self.share)
        self.agrees_with_its_plain_twin()

    def is_drained(self) -> bool:
        is_read = not [b for b in self.log if b.last_offset >= self.share.window.end]
        return is_read and not len(self.share.window)


ShareWorld.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestShareWorld = ShareWorld.TestCase
