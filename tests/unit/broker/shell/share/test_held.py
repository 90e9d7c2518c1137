"""What a leader's log shows a share-coordinator."""

from collections.abc import Sequence
from dataclasses import replace

from share_coordinator.core.share_states import Outcome, ShareStates
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidemark.model.share_state import (
    UNKNOWN_START,
    InitializeState,
    LogEpochs,
    ReadState,
    StateEpoch,
    StateRead,
    StateResult,
    WriteState,
)
from unit.broker.shell.broker_worlds import ME, OTHER, topic
from unit.broker.shell.kafka.share_fetch_worlds import (
    ACCEPT,
    Member,
    PlainState,
    ShareFetchWorld,
    running,
)
from virtual_time import pass_time, run_virtual


class KeptStates(PlainState):
    """The states of a share-coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ShareStates(updates_per_snapshot=3)
        self.logs: list[LogEpochs | None] = []

    def _replayed(self, outcome: Outcome) -> Outcome:
        for record in outcome.records:
            self.states.replay(record)
        return outcome

    async def read(
        self, group_id: str, reads: Sequence[ReadState], timeout_s: float
    ) -> list[StateRead]:
        found = []
        for one in reads:
            self.logs.append(one.log)
            if self.states.of(one.key) is None:
                begins = InitializeState(one.key, StateEpoch(1), UNKNOWN_START)
                self._replayed(self.states.initialize(begins, 0))
            reply = self._replayed(self.states.read(one, 0)).reply
            assert isinstance(reply, StateRead)
            found.append(reply)
        return found

    async def write(
        self, group_id: str, writes: Sequence[WriteState], timeout_s: float
    ) -> list[StateResult]:
        found = []
        for one in writes:
            reply = self._replayed(self.states.write(one, 0)).reply
            assert isinstance(reply, StateResult)
            found.append(reply)
        return found


class ReplacedWorld(ShareFetchWorld):
    """A leader that another one replaces, which was not in sync."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = KeptStates()
        self.shares.persister._state = self.kept

    def elect(self, leader: BrokerId, epoch: int) -> None:
        (one,) = topic(leader=leader, epoch=epoch).partitions
        both = replace(
            one, replicas=(ME, OTHER), isr=(leader,), partition_epoch=PartitionEpoch(epoch)
        )
        self.show(replace(topic(), partitions=(both,)))
        self.configure()

    def follow_a_shorter_log(self, end: int, epoch: int) -> None:
        self.elect(OTHER, epoch)
        hosted = self.at()
        hosted.log.truncate_to(end)
        hosted.partition.bounds.truncated(end, end)


def test_records_at_offsets_that_were_lost_and_used_again_are_delivered() -> None:
    async def run() -> None:
        async with running(ReplacedWorld()) as world:
            assert isinstance(world, ReplacedWorld)
            member = Member(world)
            world.put(4, 6)
            assert await member.take(0, wait_ms=500) == [(0, 9, 1)]
            assert await member.acknowledge((0, 9, ACCEPT)) is ErrorCode.NONE
            first = world.leader_epoch
            world.follow_a_shorter_log(4, first + 1)
            world.elect(ME, first + 2)
            world.put(3)
            await pass_time(1)
            assert await member.take(0, wait_ms=500) == [(4, 6, 1)]
            assert await member.acknowledge((4, 6, ACCEPT)) is ErrorCode.NONE
            world.elect(ME, first + 3)
            world.put(2)
            await pass_time(1)
            assert await member.take(0, wait_ms=500) == [(7, 8, 1)], "what is left is not again"
            starts = tuple(
                (LeaderEpoch(first + number), Offset(at)) for number, at in ((0, 0), (2, 4), (3, 7))
            )
            assert world.kept.logs[-1] == LogEpochs(starts, Offset(9))

    run_virtual(run())
