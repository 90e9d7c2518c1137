"""SharePartition: one share group's view of one partition, at the partition's leader (KIP-932).

The life of a record is four calls, each in the turn of the request that causes it:

    plan = share.plan_read(now)                 from where the log is to be read; changes nothing
    share.acquire(read, wanted, now)            locks what a member gets
    share.acknowledge(member, batches, ...)     applied, and answered once it is written
    share.next_write(now), share.written(...)   one write for all that a turn changed

Time passes by ``tick``, at ``next_deadline`` or later. ``take_wakeup`` returns True when
parked fetches of this share-partition may succeed.
"""

from collections.abc import Collection, Hashable, Sequence

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_OFFSET, InstantMs, LeaderEpoch, Offset
from tidemark.model.share_state import (
    FIRST_STATE_EPOCH,
    UNKNOWN_START,
    LogEpochs,
    PendingBatch,
    ReadState,
    SharePartitionKey,
    StateRead,
    TransactionKey,
    WriteState,
)

from broker.core.share.acknowledgement import (
    DONE,
    AcknowledgementBatch,
    Answer,
    acknowledge,
    renew,
)
from broker.core.share.acquisition import (
    AcquiredRecords,
    Acquisition,
    LogRead,
    ReadPlan,
    Wanted,
    learn_pending,
)
from broker.core.share.answers import MAY_PASS, NOT_READY, OVERTAKEN_BY, Settled, client_error
from broker.core.share.deadlines import earlier
from broker.core.share.holds import (
    belongs_to,
    check_locks,
    end_locks_of,
    held_by,
)
from broker.core.share.key_order import KeyOrder
from broker.core.share.lock_timers import LockTimers
from broker.core.share.recovery import recovered_window
from broker.core.share.settings import ShareSettings
from broker.core.share.state_writes import Pending, Span, StateOwner, StateWrites, Waiting
from broker.core.share.states import (
    ACQUIRED,
    ARCHIVING,
    NEXT_DELIVERY,
    NEXT_PHASE,
    Cause,
    Phase,
    PhaseCause,
)
from broker.core.share.transactions import TransactionLocks
from broker.core.share.window import Lock, Range, Transition, Window, hand_over


class SharePartition:
    """Invariant: a range has a transition only while a write waits or is under way with it; locks
    that hold records and are not over have a timer; nothing is acquired unless ACTIVE; after each
    call the window's first range is not finished.
    """

    def __init__(
        self, key: SharePartitionKey, leader_epoch: LeaderEpoch, settings: ShareSettings
    ) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.phase = Phase.EMPTY
        self.window = Window(Offset(0), settings.isolated_from)
        self._owner = StateOwner(key, FIRST_STATE_EPOCH, leader_epoch)
        self._durable_start = NO_OFFSET
        self._timers = LockTimers()
        self._writes = StateWrites()
        self._transactions = TransactionLocks()
        self._is_woken = False
        self.new_letters: list[Span] = []
        """Dead letters that nobody has taken."""

    def __str__(self) -> str:
        """One line: ``billing:00..07-3 Active e4 100/_300 available 5 acquired 195``."""
        return f"{self.key} {self.phase.value} e{self.leader_epoch} {self.window}"

    def configure(self, settings: ShareSettings) -> None:
        """Use other settings from now on; locks that are held keep their time."""
        self.settings = settings
        self.window.isolated_from = settings.isolated_from
        self._is_woken = True

    # -- the state at the share-coordinator

    def begin_load(self, log: LogEpochs | None = None) -> ReadState:
        """Read the state, for a leader that has this log. Valid while EMPTY."""
        self._move(PhaseCause.READ)
        return ReadState(self.key, self.leader_epoch, log)

    def loaded(self, read: StateRead, *, log_start: Offset, reset_start: Offset) -> Answer:
        """Take the answer to ``begin_load``. ``reset_start`` is the start of a group that has none
        yet: it is written before anything is acquired, so that the next leader does not choose
        another one.
        """
        if self.phase is not Phase.INITIALIZING:
            return NOT_READY[Phase.FENCED]  # fenced in the meantime
        if read.error_code is not ErrorCode.NONE:
            return self._unread(read)
        is_new = read.start_offset == UNKNOWN_START
        start = reset_start if is_new else read.start_offset
        order = KeyOrder() if self.settings.is_key_ordered else None
        isolated_from = self.settings.isolated_from
        window = recovered_window(
            max(start, log_start),
            (*read.batches, *read.pending),
            isolated_from,
            order=order,
            transactions=self._transactions,
        )
        if isinstance(window, str):
            self._move(PhaseCause.UNREADABLE)
            return Answer(ErrorCode.UNKNOWN_SERVER_ERROR, window)
        self.window = window
        self._durable_start = window.start
        self._owner = self._owner._replace(state_epoch=read.state_epoch)
        self.new_letters = [(one.first, one.last) for one in window if one.state is ARCHIVING]
        if is_new:
            self._writes.next.start = window.start
            return DONE
        if window.start > start:
            self._writes.next.start = window.start
        self._move(PhaseCause.LOADED)
        self._is_woken = True
        return DONE

    def _unread(self, read: StateRead) -> Answer:
        if read.error_code in OVERTAKEN_BY:
            self._move(PhaseCause.OVERTAKEN)
        elif read.error_code in MAY_PASS:
            self._move(PhaseCause.UNREAD)
        else:
            self._move(PhaseCause.UNREADABLE)
        return Answer(client_error(read.error_code), read.error_message)

    def fence(self) -> Settled:
        """End: another broker leads the partition, or the group's state was deleted or reset. The
        window is dropped; records that were acquired here are available at the next leader.
        """
        self._move(PhaseCause.OVERTAKEN)
        self._is_woken = True
        self.window = Window(self.window.start, self.settings.isolated_from)
        self._timers = LockTimers()
        self._transactions = TransactionLocks()
        self.new_letters = []
        return Settled(NOT_READY[Phase.FENCED], tuple(self._writes.abandon()))

    def next_write(self, now: InstantMs) -> WriteState | None:
        """Begin the next write; None if there is nothing to write, or a write is under way. Call
        it once at the end of a turn.
        """
        if not self._writes.is_due(now):
            return None
        return self._writes.begin(self._owner, self.window)

    def is_write_due(self, now: InstantMs) -> bool:
        """Return True if ``next_write`` begins one."""
        return self._writes.is_due(now)

    def pending_write(self, pending: tuple[PendingBatch, ...]) -> WriteState:
        """A write of pending batches alone. It may overlap with others: it changes nothing else."""
        return WriteState(*self._owner, UNKNOWN_START, (), pending=pending)

    def written(
        self,
        error_code: ErrorCode,
        now: InstantMs,
        message: str | None = None,
        *,
        refused: Collection[TransactionKey] = (),
    ) -> Settled:
        """Commit the transitions of the write under way, or roll them back. A write without an
        answer has REQUEST_TIMED_OUT. Of a write that holds, acknowledgements of ``refused``
        transactions are rolled back all the same.
        """
        if self._writes.under_way is None:
            return Settled(DONE, ())  # fenced in the meantime
        if error_code in OVERTAKEN_BY:
            answer = Answer(client_error(error_code), message)
            return self.fence()._replace(answer=answer)
        is_written = error_code is ErrorCode.NONE
        retry_at = InstantMs(now + self.settings.write_retry_ms)
        ended = self._writes.end(is_written=is_written, retry_at=retry_at)
        over = self._transactions.take_ended()
        if is_written:
            self._durable_start = max(self._durable_start, ended.reached)
            if refused:
                self._roll_back([one for one in ended.moved if belongs_to(one, refused)])
            self._commit(ended)
        else:
            self._roll_back(ended.moved)
        for transaction, is_committed in over.items():
            self.end_transaction(transaction, is_committed=is_committed)
        answer = DONE if is_written else Answer(client_error(error_code), message)
        return Settled(
            answer,
            tuple([one.request for one in ended.waiting if one.transaction not in refused]),
            tuple([one.request for one in ended.waiting if one.transaction in refused])
            if refused
            else (),
        )

    def _commit(self, ended: Pending) -> None:
        window = self.window
        for one in ended.moved:
            if one.transition is not None:  # else the log dropped it
                self._finish(one, one.transition)
        self.new_letters += ended.archiving
        window.advance()
        if window.start > ended.reached:  # a transaction has ended since the write began
            self._writes.next.start = window.start
        for one in ended.moved:
            if one.last >= window.start:
                window.join(one)
        self._is_woken = True
        if self.phase is Phase.INITIALIZING:
            self._move(PhaseCause.LOADED)

    def _finish(self, one: Range, transition: Transition) -> None:
        one.transition = None
        if transition.pending is not None:
            hand_over(one, self._transactions.lock(*transition.pending))
            return
        one.count = transition.delivery_count
        one.unseen += transition.is_unseen
        one.ready_at = transition.ready_at
        if transition.ready_at:
            self._timers.delay(one.first, transition.ready_at)
        self.window.become(one, transition.state)

    def _roll_back(self, moved: Sequence[Range]) -> None:
        """Undo transitions: the records are acquired again, or given back if their lock is over."""
        given_back: list[Range] = []
        for one in moved:
            if one.transition is None:
                continue
            one.transition = None
            if one.lock is not None and one.lock.is_over:
                given_back.append(one)
        self._give_back(given_back)
        for one in moved:
            self.window.join(one)

    # -- members

    def answer_unless_active(self) -> Answer | None:
        """Answer to requests in every phase but ACTIVE, where it is None."""
        return None if self.phase is Phase.ACTIVE else NOT_READY[self.phase]

    def plan_read(self, now: InstantMs, member: str) -> ReadPlan | None:
        """Return the part of the log to read for a member; None if nothing is available to it, and
        the window is full.
        """
        if self.phase is not Phase.ACTIVE:
            return None
        window = self.window
        has_room = window.room(self.settings.records_max) > 0
        if window.order is not None:
            unread = window.order.unread(window.start)
            if unread is not None:
                return ReadPlan(*unread)
            takeable = window.first_takeable(now, member)
            if takeable is not None:
                return ReadPlan(takeable, None if has_room else window.end)
            return ReadPlan(window.end, None) if has_room else None
        run = window.available_run(now)
        if run is not None:
            first, last = run
            is_open = last + 1 == window.end and has_room
            return ReadPlan(first, None if is_open else Offset(last + 1))
        return ReadPlan(window.end, None) if has_room else None

    def acquire(self, read: LogRead, wanted: Wanted, now: InstantMs) -> list[AcquiredRecords]:
        """Lock for a member what a read has of available records, in order of offsets. Nothing, as
        long as keys of records that transactions hold must be read first.
        """
        if self.phase is not Phase.ACTIVE or wanted.records_max <= 0:
            return []
        if self._timers.is_due(now):
            self.tick(now)
        order = self.window.order
        if order is not None and order.unread(self.window.start) is not None:
            learn_pending(self.window, order, read)
            self._is_woken = True
            return []
        lock = Lock(wanted.member, InstantMs(now + self.settings.lock_ms))
        acquisition = Acquisition(self.window, self.settings, wanted, lock, now)
        acquisition.run(read)
        acquired = [AcquiredRecords(one.first, one.last, one.count) for one in acquisition.taken]
        if acquired:
            self._timers.start(lock)
        for one in acquisition.archived:
            self._writes.next.unwritten.append((one.first, one.last))
        if self.window.advance():
            self._writes.start_moved(self.window, now)
        return acquired

    def acknowledge(
        self,
        member: str,
        batches: Sequence[AcknowledgementBatch],
        request: Hashable,
        now: InstantMs,
        *,
        transaction: TransactionKey | None = None,
    ) -> Answer | None:
        """Apply all acknowledgements of one request, or none. None: the request is answered with
        the result of a write. With a ``transaction`` they take effect once it commits.
        """
        if self.phase is not Phase.ACTIVE:
            return NOT_READY[self.phase]
        if self._timers.is_due(now):
            self.tick(now)
        applied = acknowledge(
            self.window,
            self.settings,
            member,
            batches,
            now,
            durable_start=self._durable_start,
            transaction=transaction,
        )
        if isinstance(applied, Answer):
            return applied
        if applied.renewed:
            lock = Lock(member, InstantMs(now + self.settings.lock_ms))
            renew(self.window, applied.renewed, lock)
            self._timers.start(lock)
        if not applied.moved:
            return DONE
        self._writes.next.moved += applied.moved
        self._writes.next.waiting.append(Waiting(request, transaction))
        return None

    def release(self, member: str, now: InstantMs) -> None:
        """Give back all records that a member holds: its session has ended."""
        if self.phase is not Phase.ACTIVE:
            return
        self.tick(now)
        self._give_back(end_locks_of(self.window, member))

    def _give_back(self, held: Sequence[Range]) -> None:
        """End the locks of acquired ranges, at once: their members may be gone."""
        window = self.window
        for one in held:
            is_exhausted = one.count >= self.settings.deliveries_max
            cause = self.settings.exhausted if is_exhausted else Cause.LOCK_ENDED
            window.become(one, NEXT_DELIVERY[ACQUIRED, cause])
            self._writes.next.unwritten.append((one.first, one.last))
        if not held:
            return
        window.advance()
        for one in held:
            window.join(one)
        self._is_woken = True

    def end_transaction(self, transaction: TransactionKey, *, is_committed: bool) -> None:
        """Give the records of a transaction their outcome, or give them back, as the
        share-coordinator has done.
        """
        under_way = self._writes.under_way
        if under_way is not None and any(
            belongs_to(one, (transaction,)) for one in under_way.moved
        ):
            self._transactions.remember(transaction, is_committed=is_committed)
        for lock in self._transactions.end(transaction):
            held = held_by(self.window, lock)
            if is_committed:
                self._give_outcome(held)
            else:
                self._give_back(held)

    def _give_outcome(self, held: Sequence[Range]) -> None:
        for one in held:
            assert one.lock is not None, "it is acquired"
            assert one.lock.pending is not None, "it is held by a transaction"
            _, outcome = one.lock.pending
            self.window.become(one, outcome)
            if outcome is ARCHIVING:
                self.new_letters.append((one.first, one.last))
        if self.window.advance():
            self._writes.next.start = self.window.start  # the share-coordinator moves no start
        for one in held:
            self.window.join(one)
        self._is_woken = True

    # -- the log and time

    def log_start_moved(self, log_start: Offset, now: InstantMs) -> None:
        """Drop the records below an offset: the log no longer has them."""
        if self.phase is not Phase.ACTIVE:
            return
        self._durable_start = max(self._durable_start, log_start)
        if log_start <= self.window.start:
            return
        self.tick(now)
        self.window.cut_below(log_start)
        self.window.advance()
        self._writes.start_moved(self.window, now)
        self._is_woken = True

    def tick(self, now: InstantMs) -> None:
        """End the locks and delays whose time has come."""
        if not self._timers.is_due(now):
            return
        for lock in self._timers.ended(now):
            self._end(lock)
        ready = self._timers.ready(now)
        if ready is not None:
            self.window.look_again_from(ready)
            self._is_woken = True

    def _end(self, lock: Lock) -> None:
        lock.is_over = True
        self._give_back(held_by(self.window, lock))

    def next_deadline(self) -> InstantMs | None:
        """Time of the next call of ``tick`` and ``next_write``; None: nothing waits for time."""
        return earlier(self._timers.next_deadline(), self._writes.next_deadline())

    @property
    def is_idle(self) -> bool:
        """True if nothing is lost when the object is dropped: all that it has is persisted."""
        return (
            not self.window.counts[ACQUIRED]
            and not self.window.counts[ARCHIVING]
            and self._writes.is_idle
            and self.next_deadline() is None
            and self.phase is not Phase.INITIALIZING
        )

    def take_wakeup(self) -> bool:
        """Return True if parked fetches may succeed or fail since the last call."""
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    # -- dead letters

    def take_dead_letters(self) -> list[Span]:
        """Records to be copied to the dead-letter queue; each is named once. Their state is
        persisted: the next leader finds them.
        """
        letters, self.new_letters = self.new_letters, []
        start = self.window.start
        return [(max(first, start), last) for first, last in letters if last >= start]

    def copied(self, first: Offset, last: Offset, cause: Cause = Cause.COPIED) -> None:
        """Archive dead letters: one transaction has copied them to the queue and archived them at
        the share-coordinator. With NO_QUEUE that is still to be written. Records that the log has
        dropped since then are ignored.
        """
        window = self.window
        first = max(first, window.start)
        if self.phase is not Phase.ACTIVE or first > last:
            return
        for one in window.over(first, last):
            if one.state is not ARCHIVING:
                continue
            (piece,) = window.carve(max(first, one.first), min(last, one.last))
            window.become(piece, NEXT_DELIVERY[ARCHIVING, cause])
            if cause is Cause.NO_QUEUE:
                self._writes.next.unwritten.append((piece.first, piece.last))
            window.join(piece)
        if window.advance():
            self._writes.next.start = window.start
            self._is_woken = True

    def _move(self, cause: PhaseCause) -> None:
        self.phase = NEXT_PHASE[self.phase, cause]

    def check(self) -> None:
        """Assert every invariant."""
        self.window.check()
        pending = (self._writes.next, self._writes.under_way or Pending())
        moved = [one for part in pending for one in part.moved if one.transition is not None]
        in_window = [one for one in self.window if one.transition is not None]
        assert sorted(map(id, moved)) == sorted(map(id, in_window)), "a transition is being written"
        for one in self.window:
            assert not one.is_finished or one is not next(iter(self.window)), "the start is behind"
        check_locks(self.window)
