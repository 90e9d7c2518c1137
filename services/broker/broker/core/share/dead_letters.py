"""Copying of one share-partition's dead letters to the queue of its group.

Records that are rejected, or delivered too often, are ARCHIVING. Their copies and their archiving
are one transaction, so that each copy is there exactly once, whatever fails in between. The
transactional id belongs to the share-partition: the next leader fences the producer of this one.

    attempt = letters.begin(now)       the letters of the next transaction, in order of offsets
    attempt.step                       what is to be done now; None once the attempt is over
    letters.did(attempt, problem)      the result of that
    letters.ended(transaction, ...)    the end, as the share-coordinator reports it

A transaction whose commit was requested holds its letters until its end is reported. All others can
only be aborted: their letters are due again.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import PendingBatch, TransactionKey, WriteState

from broker.core.share.share_partition import SharePartition
from broker.core.share.state_writes import Span
from broker.core.share.states import ARCHIVED, ARCHIVING, Cause, Phase

LETTERS_MAX: Final = 500
"""Records of one transaction."""
_BACKOFF: Final = Backoff(100, 30_000)
_READY: Final = InstantMs(0)
_FAILURES_SHOWN: Final = 2
"""Failures in a row from which on the queue counts as one that cannot be written: a leader that
changes fails one attempt.
"""


class Step(StrEnum):
    """Step of an attempt, in order."""

    BEGIN = "begin"
    """Take over the transactional id: ends the open transaction of an earlier producer."""
    READ = "read"
    """Read the records, and make their copies."""
    COPY = "copy"
    """Append the copies to the queue."""
    ENLIST = "enlist"
    """Add the group's state to the transaction."""
    HOLD = "hold"
    """Write the archiving as pending in the transaction."""
    COMMIT = "commit"
    ABORT = "abort"


class Problem(NamedTuple):
    """Reason for the failure of a step."""

    error_code: ErrorCode
    message: str


_TAKEN_OVER: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Errors after which there is nothing to abort: the transaction has ended, or will by another
producer.
"""
_PASSING: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, *_TAKEN_OVER})
"""Errors that do not concern the queue."""
_OPEN: Final = frozenset({Step.COPY, Step.ENLIST, Step.HOLD})
_AFTER: Final = {
    Step.BEGIN: Step.READ,
    Step.READ: Step.COPY,
    Step.COPY: Step.ENLIST,
    Step.ENLIST: Step.HOLD,
    Step.HOLD: Step.COMMIT,
    Step.COMMIT: None,
    Step.ABORT: None,
}


class Attempt:
    """One transaction."""

    __slots__ = ("copies", "is_committed", "problem", "spans", "step", "transaction")

    def __init__(self, spans: list[Span], step: Step, transaction: TransactionKey | None) -> None:
        self.spans = spans
        self.step: Step | None = step
        """None: over."""
        self.transaction = transaction
        self.copies = 0
        """Records in the queue once it commits."""
        self.problem: Problem | None = None
        """First failure."""
        self.is_committed: bool | None = None
        """Outcome, if it is reported before the attempt is over."""


class DeadLetters:
    """Invariant: each ARCHIVING record of the share-partition whose state is durable is due, part
    of the attempt, held by a transaction, or blocked.
    """

    def __init__(self, share: SharePartition, dice: Dice) -> None:
        self.attempt: Attempt | None = None
        self.problem: Problem | None = None
        """Reason for which the queue cannot be written; None: it can, as far as is known."""
        self.copied = 0
        """Records copied by this leader."""
        self.failures = 0
        self._share = share
        self._due: list[Span] = []
        self._held: dict[TransactionKey, list[Span]] = {}
        self._blocked: list[Span] = []
        """Letters that the queue cannot take, or that are damaged: tried again after all others, in
        turns.
        """
        self._blocked_next = Offset(0)
        """The turn is that of the first blocked letter from here on."""
        self._letters_max = LETTERS_MAX
        """Fewer after a read that failed: whatever cannot be read is then found alone."""
        self._producer: TransactionKey | None = None
        """Producer id, and the epoch of the next transaction; None: to be taken over first."""
        self._retry_at = _READY
        self._in_a_row = 0
        self._delays = RetryDelays(_BACKOFF, dice)

    @property
    def waiting(self) -> int:
        """Number of offsets that are not archived yet."""
        held = [span for spans in self._held.values() for span in spans]
        under_way = self.attempt.spans if self.attempt is not None else []
        every = (*self._due, *self._blocked, *held, *under_way)
        return sum(last - first + 1 for first, last in every)

    # -- where letters come from

    def loaded(self, pending: Sequence[PendingBatch]) -> None:
        """Take over what transactions of earlier leaders hold."""
        for batch in pending:
            if batch.before is ARCHIVING and batch.last_offset >= self._share.window.start:
                spans = self._held.setdefault(batch.transaction, [])
                spans.append((batch.first_offset, batch.last_offset))

    def _refill(self) -> None:
        """Take what became a dead letter. Without a queue it is archived."""
        share = self._share
        new = share.take_dead_letters()
        if new:
            held = [span for spans in self._held.values() for span in spans]
            self._due = joined([*self._due, *apart(new, held)])
        if not share.settings.has_dead_letters and (self._due or self._blocked):
            for first, last in (*self._due, *self._blocked):
                share.copied(first, last, Cause.NO_QUEUE)
            self._due, self._blocked, self.problem = [], [], None

    # -- attempts

    @property
    def is_idle(self) -> bool:
        """True while there are no dead letters, and none of earlier leaders: the usual case."""
        held = self._held or self._share.new_letters
        return not (held or self._due or self._blocked or self.attempt)

    def is_due(self, now: InstantMs) -> bool:
        """Return True if an attempt may begin."""
        if self.attempt is not None or self._share.phase is not Phase.ACTIVE:
            return False
        if self._held and self._producer is not None:
            self._release_dropped()
        if self._due or self._blocked or self._share.new_letters:
            self._refill()
        return self._has_work and now >= self._retry_at

    def _release_dropped(self) -> None:
        """Wait for no transaction whose letters the log has dropped. With them the state drops what
        is pending, so that its end may not be reported.
        """
        start = self._share.window.start
        left = {key: clipped(spans, start) for key, spans in self._held.items()}
        self._held = {key: spans for key, spans in left.items() if spans}

    @property
    def _has_work(self) -> bool:
        """True if letters are to be copied, or if an earlier producer is to be fenced first."""
        if self._held:
            return self._producer is None
        return bool(self._due or self._blocked)

    def next_deadline(self) -> InstantMs | None:
        """Time of the next attempt, after a failure; None: nothing waits for it."""
        if self._retry_at == _READY or self.attempt is not None or not self._has_work:
            return None
        # A share-partition that is fenced stays so: its letters are another leader's.
        return self._retry_at if self._share.phase is Phase.ACTIVE else None

    def begin(self, now: InstantMs) -> Attempt | None:
        """Begin the next attempt, if one is due. Letters that were blocked come last, alone."""
        if not self.is_due(now):
            return None
        spans: list[Span] = []
        if not self._held:
            while not spans:
                if self._due:
                    spans, self._due = taken(self._due, self._letters_max)
                elif self._blocked:
                    spans = self._take_blocked()
                else:
                    self.problem = None  # the log has dropped all that waited
                    return None
                spans = self._still_waiting(spans)
        step = Step.BEGIN if self._producer is None else Step.READ
        self.attempt = Attempt(spans, step, self._producer)
        return self.attempt

    def _take_blocked(self) -> list[Span]:
        """Take the blocked letter whose turn it is."""
        turns = clipped(self._blocked, self._blocked_next) or self._blocked
        offset, _ = turns[0]
        self._blocked = apart(self._blocked, [(offset, offset)])
        self._blocked_next = Offset(offset + 1)
        return [(offset, offset)]

    def _still_waiting(self, spans: list[Span]) -> list[Span]:
        """Leave out what is archived by now."""
        window = self._share.window
        found: list[Span] = []
        for first, last in clipped(spans, window.start):
            for one in window.over(first, last):
                if one.state is ARCHIVING:
                    found.append((max(first, one.first), min(last, one.last)))
        return joined(found)

    def is_current(self, attempt: Attempt) -> bool:
        """Return False for an attempt of a leader that is none any longer."""
        return self.attempt is attempt and self._share.phase is Phase.ACTIVE

    def began(self, attempt: Attempt, producer_id: int, producer_epoch: int) -> None:
        """Take the answer to BEGIN, COMMIT or ABORT: the producer of the next transaction."""
        self._producer = TransactionKey(ProducerId(producer_id), ProducerEpoch(producer_epoch))
        if attempt.step is Step.BEGIN:
            attempt.transaction = self._producer

    def was_read(
        self,
        attempt: Attempt,
        end: Offset,
        too_large: Sequence[Offset],
        unreadable: Sequence[Offset] = (),
    ) -> None:
        """Take what READ found: letters from ``end`` on are left to a later attempt, and those that
        are too large for the queue, or cannot be read, do not hold up the others.
        """
        blocked = [(offset, offset) for offset in (*too_large, *unreadable)]
        rest = apart(attempt.spans, [(Offset(0), Offset(end - 1))])
        attempt.spans = apart(attempt.spans, [*rest, *blocked])
        self._due = joined([*rest, *self._due])
        self._blocked = joined([*self._blocked, *blocked])
        if too_large:
            words = f"the record at offset {too_large[0]} is larger than the queue allows"
            self.problem = Problem(ErrorCode.MESSAGE_TOO_LARGE, words)
        elif unreadable:
            words = f"the record at offset {unreadable[0]} is damaged and cannot be copied"
            self.problem = Problem(ErrorCode.CORRUPT_MESSAGE, words)

    def archiving(self, attempt: Attempt) -> WriteState:
        """The write of HOLD."""
        assert attempt.transaction is not None, "begun"
        batches = [
            PendingBatch(first, last, ARCHIVED, count, attempt.transaction, ARCHIVING)
            for first, last, count in self.letters_of(attempt)
        ]
        return self._share.pending_write(tuple(batches))

    def finished_below(self, attempt: Attempt, start: Offset) -> None:
        """Take the durable start offset after HOLD was refused. Letters below it are finished: an
        acknowledgement was written whose answer was lost, so that they were delivered again.
        """
        for first, last, _ in self.letters_of(attempt):
            self._share.copied(first, min(last, Offset(start - 1)))

    def letters_of(self, attempt: Attempt) -> list[tuple[Offset, Offset, int]]:
        """Spans of an attempt, each with the delivery count of its records."""
        window = self._share.window
        return [
            (max(first, one.first), min(last, one.last), one.count)
            for first, last in clipped(attempt.spans, window.start)
            for one in window.over(first, last)
            if one.state is ARCHIVING
        ]

    def did(self, attempt: Attempt, problem: Problem | None, now: InstantMs) -> None:
        """Note the end of the attempt's step."""
        step = attempt.step
        assert step is not None, "an attempt that is over has no step"
        if problem is None:
            attempt.step = _AFTER[step]
            if not attempt.spans and attempt.step in (Step.READ, Step.COPY):
                attempt.step = None  # it was for the takeover only, or nothing can be copied
        else:
            attempt.problem = attempt.problem or problem
            if step is Step.READ and problem.error_code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._not_read(attempt, problem)
            must_abort = step in _OPEN and problem.error_code not in _TAKEN_OVER
            attempt.step = Step.ABORT if must_abort else None
            if attempt.step is None and step is not Step.READ:
                self._producer = None
        if attempt.step is None:
            self._over(attempt, now, has_committed=step is Step.COMMIT)

    def _not_read(self, attempt: Attempt, problem: Problem) -> None:
        """Read one letter after the other from now on: one that fails alone is blocked, and the
        next one is read at once.
        """
        if sum(last - first + 1 for first, last in attempt.spans) > 1:
            self._letters_max = 1
            return
        self._blocked = joined([*self._blocked, *attempt.spans])
        attempt.spans, attempt.problem, self.problem = [], None, problem

    def _over(self, attempt: Attempt, now: InstantMs, *, has_committed: bool) -> None:
        self.attempt = None
        if attempt.is_committed is not None:
            self._settle(attempt.spans, is_committed=attempt.is_committed)
        elif has_committed:
            assert attempt.transaction is not None, "begun"
            self._held[attempt.transaction] = attempt.spans  # even without an answer
        else:
            self._settle(attempt.spans, is_committed=False)
        if attempt.problem is None:
            self._retry_at = _READY
            if has_committed:
                self._in_a_row = 0
                self._delays.reset()
                self._letters_max = min(LETTERS_MAX, 2 * self._letters_max)
                self.copied += attempt.copies
                self.problem = self.problem if self._blocked else None
            if self._blocked and not self._due:
                self._wait(now)
            return
        self.failures += 1
        self._in_a_row += 1
        is_queues = attempt.problem.error_code not in _PASSING
        if is_queues and (self._in_a_row >= _FAILURES_SHOWN or not attempt.copies):
            self.problem = attempt.problem
        self._wait(now)

    def retry(self) -> None:
        """Do not wait for the next attempt: the configuration has changed."""
        self._retry_at = _READY
        self._delays.reset()

    def _wait(self, now: InstantMs) -> None:
        self._retry_at = InstantMs(now + max(1, round(self._delays.next_ms())))

    def abandon(self, attempt: Attempt, now: InstantMs, problem: Problem) -> None:
        """End an attempt that an internal error has ended: the next one begins with a takeover."""
        if self.attempt is attempt:
            has_committed = attempt.step is Step.COMMIT
            attempt.problem, attempt.step, self._producer = problem, None, None
            self._over(attempt, now, has_committed=has_committed)

    # -- ends of transactions

    def ended(self, transaction: TransactionKey, *, is_committed: bool) -> None:
        """Archive the letters of a transaction, or make them due again, as the share-coordinator
        has done.
        """
        attempt = self.attempt
        if attempt is not None and attempt.transaction == transaction:
            attempt.is_committed = is_committed
        self._settle(self._held.pop(transaction, []), is_committed=is_committed)

    def _settle(self, spans: list[Span], *, is_committed: bool) -> None:
        if not is_committed:
            self._due = joined([*self._due, *spans])
            return
        for first, last in spans:
            self._share.copied(first, last)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, neighbours as one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def clipped(spans: Iterable[Span], start: Offset) -> list[Span]:
    """Spans without what is below an offset."""
    return [(max(first, start), last) for first, last in spans if last >= start]


def apart(spans: Iterable[Span], removed: Iterable[Span]) -> list[Span]:
    """Spans without the offsets of others."""
    left = joined(spans)
    for first, last in joined(removed):
        kept: list[Span] = []
        for low, high in left:
            if high < first or low > last:
                kept.append((low, high))
                continue
            if low < first:
                kept.append((low, Offset(first - 1)))
            if high > last:
                kept.append((Offset(last + 1), high))
        left = kept
    return left


def taken(spans: Sequence[Span], records_max: int) -> tuple[list[Span], list[Span]]:
    """The first spans, up to a number of records, and the rest."""
    first_spans: list[Span] = []
    for number, (first, last) in enumerate(spans):
        if last - first + 1 > records_max:
            cut = Offset(first + records_max)
            if records_max:
                first_spans.append((first, Offset(cut - 1)))
            return first_spans, [(cut, last), *spans[number + 1 :]]
        first_spans.append((first, last))
        records_max -= last - first + 1
    return first_spans, []
