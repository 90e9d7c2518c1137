"""One share-partition with a log of batches, in few words."""

from collections.abc import Sequence

from broker.core.share.acknowledgement import AcknowledgementBatch, Answer
from broker.core.share.acquisition import AcquireMode, LogBatch, LogRead, Wanted
from broker.core.share.answers import Settled
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import SharePartition
from broker.core.share.states import Phase
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateRead,
    TransactionKey,
    WriteState,
)

KEY = SharePartitionKey("billing", TopicId(bytes(16)), 0)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = DeliveryState
LOCK_MS = 1_000
Story = list[tuple[int, int, str, int]]


def log_batch(first: int, last: int, *, has_records: bool = True) -> LogBatch:
    return LogBatch(Offset(first), Offset(last), has_records)


def state_batch(first: int, last: int, state: DeliveryState, count: int) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count)


def say(
    first: int, last: int, *types: int, delay_ms: int = 0, is_unseen: bool = False
) -> AcknowledgementBatch:
    return AcknowledgementBatch(Offset(first), Offset(last), types, delay_ms, is_unseen)


class ShareWorld:
    """A leader, members, and a log of batches of ten records each."""

    def __init__(self, settings: ShareSettings | None = None, *, start: int = 0) -> None:
        self.settings = settings or ShareSettings(lock_ms=LOCK_MS)
        self.now = InstantMs(0)
        self.log = [log_batch(first, first + 9) for first in range(0, 200, 10)]
        self.share = SharePartition(KEY, LeaderEpoch(4), self.settings)
        self.start = start

    def load(
        self, *batches: StateBatch, log_start: int = 0, pending: Sequence[PendingBatch] = ()
    ) -> "ShareWorld":
        self.share.begin_load()
        start = Offset(self.start)
        read = StateRead(KEY, ErrorCode.NONE, StateEpoch(7), start, batches, tuple(pending))
        answer = self.share.loaded(read, log_start=Offset(log_start), reset_start=Offset(0))
        assert answer.error_code is ErrorCode.NONE, answer
        assert self.share.phase is Phase.ACTIVE
        return self

    def fetch(
        self,
        member: str = "m1",
        records: int = 10,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        *,
        batch_records: int = 1_000,
    ) -> list[tuple[int, int, int]]:
        """First and last offset and delivery count of what the member gets."""
        plan = self.share.plan_read(self.now, member)
        if plan is None:
            return []
        found = [batch for batch in self.log if batch.last_offset >= plan.first_offset]
        end = found[-1].last_offset + 1 if found else plan.first_offset
        read = LogRead(plan.first_offset, Offset(end), found)
        acquired = self.share.acquire(read, Wanted(member, records, batch_records, mode), self.now)
        self.share.check()
        return [(first, last, count) for first, last, count in acquired]

    def acknowledge(
        self,
        *batches: AcknowledgementBatch,
        member: str = "m1",
        request: str = "r1",
        transaction: TransactionKey | None = None,
    ) -> ErrorCode | None:
        answer = self.share.acknowledge(member, batches, request, self.now, transaction=transaction)
        self.share.check()
        return None if answer is None else answer.error_code

    def begin_write(self) -> WriteState:
        write = self.share.next_write(self.now)
        assert write is not None
        return write

    def write(self, code: ErrorCode = ErrorCode.NONE) -> Settled:
        """A write, with this result."""
        self.begin_write()
        return self.end_write(code)

    def end_write(self, code: ErrorCode = ErrorCode.NONE) -> Settled:
        settled = self.share.written(code, self.now)
        self.share.check()
        return settled

    def done(self, *batches: AcknowledgementBatch, member: str = "m1") -> Answer:
        """Acknowledge and write."""
        assert self.acknowledge(*batches, member=member) is None
        return self.write().answer

    def pass_time(self, ms: int) -> None:
        self.now = InstantMs(self.now + ms)
        self.share.tick(self.now)
        self.share.check()

    def story(self) -> list[str]:
        """All ranges: ``0-9 ACQUIRED 1 m1``."""
        return [str(one) for one in self.share.window]
