"""Random elections, some of which lose the end of a log, and leaders that finish records meanwhile:
what a leader reads as finished are the records that were finished, and all of those.
"""

from broker.core.leader_epochs import LeaderEpochs
from hypothesis import example, given
from hypothesis import strategies as st
from share_coordinator.core.share_states import ShareStates
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import (
    DeliveryState,
    InitializeState,
    LogEpochs,
    ReadState,
    SharePartitionKey,
    StateEpoch,
    StateRead,
)
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import G, a_write, batch

KEY = SharePartitionKey(G, topic_id(1), 0)
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("finish"), st.integers(0, 6)),
        st.tuples(st.just("elect"), st.just(0)),
        st.tuples(st.just("lose"), st.integers(1, 6)),
        st.tuples(st.just("read"), st.just(0)),
    ),
    max_size=30,
)


class History:
    """A log, in which a record is known by its offset and the epoch that wrote it, and a state."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epochs = LeaderEpochs()
        self.epoch = 0
        self.finished: set[tuple[int, int]] = set()
        self.states = ShareStates(updates_per_snapshot=3)
        begins = InitializeState(KEY, StateEpoch(1), Offset(0))
        self._replay(*self.states.initialize(begins, 0).records)
        self.elect(0)

    def _replay(self, *records: object) -> None:
        for record in records:
            self.states.replay(record)  # type: ignore[arg-type]

    def elect(self, lost: int) -> None:
        end = max(0, len(self.log) - lost)
        del self.log[end:]
        self.epochs.truncate_to(end)
        self.epoch += 1
        self.epochs.assign(self.epoch, end)
        self.window: dict[int, bool] | None = None

    def append(self, count: int) -> None:
        self.log += [self.epoch] * count

    def read(self) -> None:
        log = LogEpochs(self.epochs.entries(), Offset(len(self.log)))
        outcome = self.states.read(ReadState(KEY, LeaderEpoch(self.epoch), log), 0)
        self._replay(*outcome.records)
        found = outcome.reply
        assert isinstance(found, StateRead)
        known = set(range(found.start_offset))
        for one in found.batches:
            known |= set(range(one.first_offset, one.last_offset + 1))
        assert known == {at for at, epoch in enumerate(self.log) if (at, epoch) in self.finished}
        self.window = dict.fromkeys(known, True)

    def finish(self, ahead: int) -> None:
        """Finish a record that the window has not finished, some records after the first one."""
        if self.window is None:
            self.read()
        assert self.window is not None
        left = [at for at in range(len(self.log)) if at not in self.window]
        if not left:
            return
        at = left[min(ahead, len(left) - 1)]
        self.window[at] = True
        self.finished.add((at, self.log[at]))
        start = next((one for one in left if one != at), len(self.log))
        done = [batch(at, at, ACKNOWLEDGED)] if at >= start else []
        write = a_write(KEY, 1, *done, start=start, leader_epoch=self.epoch)
        outcome = self.states.write(write, 0)
        assert outcome.reply.error_code is ErrorCode.NONE
        self._replay(*outcome.records)


UNREAD: list[tuple[str, int]] = [
    *(("append", 4), ("finish", 3), ("lose", 3), ("append", 3)),
    ("elect", 0),
]
"""The leader after the loss does not read the state, and the next one has a log that is as long."""


@given(STEPS)
@example(UNREAD)
def test_what_is_finished_are_records_of_the_log(steps: list[tuple[str, int]]) -> None:
    history = History()
    for step, number in steps:
        match step:
            case "append":
                history.append(number)
            case "finish":
                history.finish(number)
            case "elect" | "lose":
                history.elect(number)
            case _:
                history.read()
        history.states.check()
    history.read()
