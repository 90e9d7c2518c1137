"""Transactions that copy dead letters to their queue, step by step."""

import pytest
from broker.core.share.dead_letters import (
    LETTERS_MAX,
    Attempt,
    DeadLetters,
    Problem,
    Step,
    apart,
    joined,
    taken,
)
from broker.core.share.settings import ShareSettings
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import UNKNOWN_START, PendingBatch, TransactionKey
from unit.broker.core.share.share_worlds import (
    ARCHIVED,
    ARCHIVING,
    LOCK_MS,
    REJECT,
    ShareWorld,
    say,
    state_batch,
)

SETTINGS = ShareSettings(lock_ms=LOCK_MS, has_dead_letters=True)
UNREADABLE = Problem(ErrorCode.KAFKA_STORAGE_ERROR, "orders-0: the records could not be read")
DOWN = Problem(ErrorCode.LEADER_NOT_AVAILABLE, "dlq.a-0 has no leader")
T1 = TransactionKey(ProducerId(9), ProducerEpoch(0))
ORDER = [Step.BEGIN, Step.READ, Step.COPY, Step.ENLIST, Step.HOLD, Step.COMMIT]
spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 5)).map(
        lambda one: (Offset(one[0]), Offset(one[0] + one[1]))
    ),
    max_size=5,
)


class Copying:
    """A leader with dead letters at offsets 0 to 9, and what it does with them."""

    def __init__(self, *, last: int = 9, held: tuple[PendingBatch, ...] = ()) -> None:
        self.world = ShareWorld(SETTINGS)
        self.world.load(state_batch(0, last, ARCHIVING, 2), pending=held)
        self.letters = DeadLetters(self.world.share, lambda: 0.5)
        self.letters.loaded(held)

    @property
    def now(self) -> InstantMs:
        return self.world.now

    def begin(self) -> Attempt:
        attempt = self.letters.begin(self.now)
        assert attempt is not None
        return attempt

    def run(self, attempt: Attempt, *, fail: Step | None = None, why: Problem = DOWN) -> list[Step]:
        """All steps, with a failure of one of them."""
        done = []
        while attempt.step is not None:
            step = attempt.step
            done.append(step)
            if step is not fail and step in (Step.BEGIN, Step.COMMIT, Step.ABORT):
                epoch = 0 if attempt.transaction is None else attempt.transaction.producer_epoch + 1
                self.letters.began(attempt, 9, epoch)
            self.letters.did(attempt, why if step is fail else None, self.now)
        return done

    def spans(self) -> list[tuple[int, int]]:
        attempt = self.letters.begin(self.now)
        return [] if attempt is None else [(first, last) for first, last in attempt.spans]


def test_the_steps_of_a_transaction() -> None:
    copying = Copying()
    assert copying.run(copying.begin()) == ORDER
    assert copying.world.story() == ["0-9 ARCHIVING 2"], "until its end is reported"
    assert copying.letters.begin(copying.now) is None
    copying.letters.ended(T1, is_committed=True)
    assert copying.world.share.window.start == 10


def test_the_takeover_is_done_once() -> None:
    copying = Copying()
    copying.run(copying.begin())
    copying.letters.ended(T1, is_committed=False)
    attempt = copying.begin()
    assert attempt.transaction == (9, 1)
    assert copying.run(attempt) == ORDER[1:]


def test_the_archiving_is_pending_in_the_transaction() -> None:
    copying = Copying()
    attempt = copying.begin()
    copying.letters.began(attempt, *T1)
    write = copying.letters.archiving(attempt)
    assert (write.start_offset, write.batches, write.leader_epoch) == (UNKNOWN_START, (), 4)
    assert write.pending == (PendingBatch(Offset(0), Offset(9), ARCHIVED, 2, T1, ARCHIVING),)


def test_letters_below_the_durable_start_are_finished() -> None:
    copying = Copying()
    attempt = copying.begin()
    copying.letters.finished_below(attempt, Offset(4))
    assert copying.world.share.window.start == 4
    copying.run(attempt, fail=Step.HOLD)
    copying.world.pass_time(60_000)
    assert copying.spans() == [(4, 9)]


def test_an_unknown_durable_start_finishes_nothing() -> None:
    copying = Copying()
    copying.letters.finished_below(copying.begin(), UNKNOWN_START)
    assert copying.world.share.window.start == 0


@pytest.mark.parametrize("step", [Step.COPY, Step.ENLIST, Step.HOLD])
def test_a_step_that_fails_aborts_and_the_letters_are_due_again(step: Step) -> None:
    copying = Copying()
    assert copying.run(copying.begin(), fail=step) == [*ORDER[: ORDER.index(step) + 1], Step.ABORT]
    assert copying.letters.begin(copying.now) is None, "not at once"
    due = copying.letters.next_deadline()
    assert due is not None
    copying.world.pass_time(due - copying.now)
    assert copying.spans() == [(0, 9)]


def test_a_share_partition_that_is_fenced_tries_again_at_no_time() -> None:
    copying = Copying()
    copying.run(copying.begin(), fail=Step.COPY)
    assert copying.letters.next_deadline() is not None
    copying.world.share.fence()
    assert copying.letters.next_deadline() is None
    copying.world.pass_time(60_000)
    assert copying.letters.begin(copying.now) is None


@pytest.mark.parametrize("step", [Step.BEGIN, Step.COPY, Step.HOLD])
def test_a_producer_that_is_fenced_has_nothing_to_abort(step: Step) -> None:
    copying = Copying()
    fenced = Problem(ErrorCode.PRODUCER_FENCED, "another leader")
    assert copying.run(copying.begin(), fail=step, why=fenced)[-1] is step
    copying.world.pass_time(200)
    assert copying.begin().step is Step.BEGIN
    assert copying.letters.problem is None, "that says nothing about the queue"


@pytest.mark.parametrize(("is_committed", "start"), [(True, 10), (False, 0)])
def test_a_commit_without_an_answer_is_decided_by_the_end(
    start: int, *, is_committed: bool
) -> None:
    copying = Copying()
    copying.run(copying.begin(), fail=Step.COMMIT)
    copying.world.pass_time(60_000)
    takeover = copying.begin()
    assert takeover.spans == [], "the letters are not copied meanwhile"
    assert copying.run(takeover) == [Step.BEGIN]
    copying.letters.ended(T1, is_committed=is_committed)
    assert copying.world.share.window.start == start
    assert copying.spans() == ([] if is_committed else [(0, 9)])


def test_an_end_may_be_reported_before_the_answer_to_the_commit() -> None:
    copying = Copying()
    attempt = copying.begin()
    copying.letters.began(attempt, *T1)
    copying.letters.ended(T1, is_committed=True)
    attempt.step = Step.COMMIT
    copying.letters.did(attempt, None, copying.now)
    assert copying.world.share.window.start == 10


@pytest.mark.parametrize(("is_committed", "due"), [(True, []), (False, [(0, 9)])])
def test_a_new_leader_ends_the_transaction_of_the_earlier_one_first(
    due: list[tuple[int, int]], *, is_committed: bool
) -> None:
    held = PendingBatch(Offset(0), Offset(9), ARCHIVED, 2, T1, ARCHIVING)
    copying = Copying(last=0, held=())
    copying.world = ShareWorld(SETTINGS).load(pending=[held])
    copying.letters = DeadLetters(copying.world.share, lambda: 0.5)
    copying.letters.loaded([held])
    assert copying.run(copying.begin()) == [Step.BEGIN]
    assert copying.letters.begin(copying.now) is None
    copying.letters.ended(T1, is_committed=is_committed)
    assert copying.spans() == due


def test_letters_that_are_too_large_hold_up_no_others() -> None:
    copying = Copying()
    attempt = copying.begin()
    copying.letters.was_read(attempt, Offset(8), [Offset(3), Offset(4)])
    assert attempt.spans == [(0, 2), (5, 7)]
    copying.run(attempt)
    assert copying.letters.problem == (
        ErrorCode.MESSAGE_TOO_LARGE,
        "the record at offset 3 is larger than the queue allows",
    )
    copying.letters.ended(T1, is_committed=True)
    assert copying.spans() == [(8, 9)], "what was not read comes next"


def test_letters_that_cannot_be_read_hold_up_no_others() -> None:
    copying = Copying()
    attempt = copying.begin()
    copying.letters.was_read(attempt, Offset(10), [], [Offset(0), Offset(1)])
    assert attempt.spans == [(2, 9)]
    copying.run(attempt)
    copying.letters.ended(T1, is_committed=True)
    assert copying.world.story()[0] == "0-1 ARCHIVING 2"
    assert copying.letters.problem == (
        ErrorCode.CORRUPT_MESSAGE,
        "the record at offset 0 is damaged and cannot be copied",
    )
    copying.world.pass_time(60_000)
    assert copying.spans() == [(0, 0)], "it is tried again alone"


def test_letters_that_wait_for_an_operator_are_tried_again_in_turns() -> None:
    copying = Copying()
    attempt = copying.begin()
    copying.letters.was_read(attempt, Offset(10), [Offset(5)], [Offset(0)])
    copying.run(attempt)
    copying.letters.ended(T1, is_committed=True)
    tried = []
    for _ in range(4):
        copying.world.pass_time(60_000)
        attempt = copying.begin()
        tried += attempt.spans
        ((offset, _),) = attempt.spans
        copying.letters.was_read(attempt, Offset(offset + 1), [], [offset])
        copying.letters.did(attempt, None, copying.now)
    assert tried == [(0, 0), (5, 5), (0, 0), (5, 5)]


@pytest.mark.parametrize("damaged", [{0}, {0, 1, 2}, {4, 5}, {9}, {0, 9}])
def test_a_range_that_cannot_be_read_holds_up_no_others(damaged: set[int]) -> None:
    copying = Copying()
    finished: set[int] = set()
    for _ in range(20):  # some of them find what cannot be read
        copying.world.pass_time(60_000)
        attempt = copying.begin()
        wanted = {one for first, last in attempt.spans for one in range(first, last + 1)}
        is_readable = wanted.isdisjoint(damaged)
        copying.run(attempt, fail=None if is_readable else Step.READ, why=UNREADABLE)
        if is_readable:
            assert attempt.transaction is not None
            copying.letters.ended(attempt.transaction, is_committed=True)
            finished |= wanted
        if len(finished | damaged) == 10 and copying.letters.problem is not None:
            break
    assert finished == set(range(10)) - damaged
    assert copying.letters.problem == UNREADABLE
    archiving = [one for one in copying.world.share.window if one.state is ARCHIVING]
    assert sum(one.records for one in archiving) == len(damaged)


def test_a_letter_that_is_too_large_is_tried_again_alone() -> None:
    copying = Copying(last=0)
    delays = []
    for _ in range(12):
        attempt = copying.begin()
        attempt.step = Step.READ
        copying.letters.was_read(attempt, Offset(1), [Offset(0)])
        copying.letters.did(attempt, None, copying.now)
        due = copying.letters.next_deadline()
        assert due is not None
        delays.append(due - copying.now)
        copying.world.pass_time(delays[-1])
    assert delays == sorted(delays)
    assert delays[-1] == 30_000


def test_a_transaction_has_a_limited_number_of_letters() -> None:
    copying = Copying(last=LETTERS_MAX + 9)
    assert copying.spans() == [(0, LETTERS_MAX - 1)]


def test_without_a_queue_dead_letters_are_archived() -> None:
    copying = Copying()
    copying.world.share.configure(ShareSettings(lock_ms=LOCK_MS))
    assert copying.letters.begin(copying.now) is None
    assert copying.world.share.window.start == 10
    assert copying.world.begin_write().start_offset == 10


def test_a_queue_that_fails_twice_in_a_row_counts_as_one_that_cannot_be_written() -> None:
    copying = Copying()
    shown = []
    for fail in (Step.COPY, Step.COPY, None):
        attempt = copying.begin()
        attempt.copies = 10
        copying.run(attempt, fail=fail)
        shown.append(copying.letters.problem)
        copying.world.pass_time(60_000)
    assert shown == [None, DOWN, None]
    assert (copying.letters.copied, copying.letters.failures) == (10, 2)


def test_letters_that_the_log_dropped_are_not_copied() -> None:
    copying = Copying()
    copying.world.share.log_start_moved(Offset(4), copying.now)
    assert copying.spans() == [(4, 9)]


def test_letters_that_the_log_dropped_hold_up_no_others() -> None:
    copying = Copying(last=LETTERS_MAX + 99)
    assert copying.letters.is_due(copying.now)
    copying.world.share.log_start_moved(Offset(LETTERS_MAX + 20), copying.now)
    assert copying.spans() == [(LETTERS_MAX + 20, LETTERS_MAX + 99)]


def test_a_transaction_all_of_whose_letters_the_log_dropped_holds_up_no_others() -> None:
    """The state no longer has its pending archiving, so that nobody reports its end."""
    copying = Copying(last=LETTERS_MAX + 9)
    copying.run(copying.begin())
    copying.world.share.log_start_moved(Offset(LETTERS_MAX - 1), copying.now)
    assert copying.letters.begin(copying.now) is None
    copying.world.share.log_start_moved(Offset(LETTERS_MAX), copying.now)
    assert copying.spans() == [(LETTERS_MAX, LETTERS_MAX + 9)]


def test_an_earlier_transaction_is_ended_also_if_the_log_dropped_its_letters() -> None:
    copying = Copying()
    copying.run(copying.begin(), fail=Step.COMMIT)
    copying.world.share.log_start_moved(Offset(10), copying.now)
    copying.world.pass_time(60_000)
    assert copying.run(copying.begin()) == [Step.BEGIN]
    assert copying.letters.begin(copying.now) is None
    assert copying.letters.is_idle


def test_a_queue_has_no_problem_once_the_log_dropped_all_that_waited() -> None:
    copying = Copying()
    copying.run(copying.begin(), fail=Step.READ)
    assert copying.letters.problem == DOWN
    copying.world.share.log_start_moved(Offset(10), copying.now)
    copying.world.pass_time(60_000)
    assert copying.spans() == []
    assert copying.letters.problem is None


def test_new_letters_are_due_once_they_are_durable() -> None:
    world = ShareWorld(SETTINGS).load()
    letters = DeadLetters(world.share, lambda: 0.5)
    world.fetch()
    world.acknowledge(say(2, 3, REJECT))
    world.begin_write()
    assert letters.begin(world.now) is None
    world.end_write()
    attempt = letters.begin(world.now)
    assert attempt is not None
    assert (attempt.spans, letters.waiting) == ([(2, 3)], 2)


def test_an_attempt_that_an_internal_error_ends_is_made_again() -> None:
    copying = Copying()
    copying.letters.abandon(copying.begin(), copying.now, DOWN)
    copying.world.pass_time(200)
    assert copying.begin().step is Step.BEGIN


def offsets_of(found: list[tuple[Offset, Offset]]) -> set[int]:
    return {offset for first, last in found for offset in range(first, last + 1)}


@given(spans, spans)
def test_spans_are_sets_of_offsets(
    some: list[tuple[Offset, Offset]], others: list[tuple[Offset, Offset]]
) -> None:
    assert offsets_of(joined(some)) == offsets_of(some)
    assert offsets_of(apart(some, others)) == offsets_of(some) - offsets_of(others)


@given(spans, st.integers(0, 20))
def test_the_first_of_spans_and_the_rest(
    some: list[tuple[Offset, Offset]], records_max: int
) -> None:
    found, rest = taken(joined(some), records_max)
    assert joined([*found, *rest]) == joined(some)
    assert len(offsets_of(found)) == min(records_max, len(offsets_of(some)))
    assert sorted(offsets_of(some))[: len(offsets_of(found))] == sorted(offsets_of(found))
