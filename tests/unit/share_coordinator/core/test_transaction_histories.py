"""Random histories of transactional acknowledgements, compared offset by offset with the plain
coordinator by which the leaders' histories are checked.
"""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from share_coordinator.core.settings import ShareSettings
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ProducerEpoch, ProducerId
from tidemark.model.share_state import (
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    StateBatch,
    StateResult,
    TransactionKey,
)
from unit.broker.core.share.plain_share_partition import PlainCoordinator
from unit.share_coordinator.worlds import World, a_write, batch, pending

SETTINGS = ShareSettings(share_coordinator_snapshot_update_records_per_snapshot=3)
EPOCHS_MAX = 4

offsets = st.integers(0, 12)
lengths = st.integers(0, 3)
counts = st.integers(0, 3)
states = st.sampled_from(
    [DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED]
)
outcomes = st.sampled_from([DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED])
producers = st.sampled_from([1, 2])


def are_apart(found: Sequence[StateBatch | PendingBatch]) -> bool:
    """No two of them overlap: as a leader writes them."""
    seen = [offset for one in found for offset in range(one.first_offset, one.last_offset + 1)]
    return len(seen) == len(set(seen))


batches = st.lists(
    st.builds(
        lambda first, length, state, count: batch(first, first + length, state, count),
        offsets,
        lengths,
        states,
        counts,
    ),
    max_size=2,
).filter(are_apart)
held = st.lists(
    st.builds(
        lambda first, length, outcome, count, producer, epoch, is_letter: pending(
            first,
            first + length,
            DeliveryState.ARCHIVED if is_letter else outcome,
            count,
            producer=producer,
            epoch=epoch,
            before=DeliveryState.ARCHIVING if is_letter else DeliveryState.ACQUIRED,
        ),
        offsets,
        lengths,
        outcomes,
        counts,
        producers,
        st.integers(0, EPOCHS_MAX),
        st.booleans(),
    ),
    max_size=3,
).filter(are_apart)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(SETTINGS, t=2)
        self.world.join("a", "t")
        self.keys = [self.world.key("t", number) for number in range(2)]
        self.plain = {key: PlainCoordinator() for key in self.keys}
        for key in self.keys:
            assert self.world.write(key, start=0).error_code is ErrorCode.NONE

    @rule(number=st.integers(0, 1), batches=batches, held=held, start=st.none() | offsets)
    def write(
        self,
        number: int,
        batches: list[StateBatch],
        held: list[PendingBatch],
        start: int | None,
    ) -> None:
        key = self.keys[number]
        write = a_write(
            key,
            self.world.epoch_of(key),
            *batches,
            start=-1 if start is None else start,
            pending=tuple(held),
        )
        (answer,) = self.world.ask_states(write)
        assert isinstance(answer, StateResult)
        assert answer.error_code is ErrorCode.NONE, answer
        assert answer.refused == self.plain[key].write(write)

    @rule(producer=producers, epoch=st.integers(0, EPOCHS_MAX), commits=st.booleans())
    def end(self, producer: int, epoch: int, commits: bool) -> None:
        self.world.end_transaction(epoch + 1, commits=commits, producer=producer)
        for plain in self.plain.values():
            for ended in range(epoch + 1):
                key = TransactionKey(ProducerId(producer), ProducerEpoch(ended))
                plain.end_transaction(key, is_committed=commits)

    @rule(ms=st.sampled_from([1_000, 300_000]))
    def sleep(self, ms: int) -> None:
        self.world.sleep(ms)

    @rule()
    def crash(self) -> None:
        self.world.reload()

    @invariant()
    def states_are_those_of_the_plain_coordinator(self) -> None:
        for key, plain in self.plain.items():
            seen = {o: one for o, one in plain.states.items() if o not in plain.pending}
            assert self.by_offset(key) == (plain.start, seen, plain.pending)

    @invariant()
    def the_log_says_all_of_it_from_wherever_it_may_begin(self) -> None:
        needed = self.world.shard._upkeep._offsets.needed_from()
        for start in {self.world.log_start, needed}:
            assert self.world.replayed(start) == self.world.shard

    def by_offset(self, key: SharePartitionKey) -> tuple[object, object, object]:
        found = self.world.read(key)
        states = {
            offset: (one.delivery_state, one.delivery_count)
            for one in found.batches
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        held_now = {
            offset: (one.outcome, one.delivery_count, one.transaction, one.before)
            for one in found.pending
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        return found.start_offset, states, held_now


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
