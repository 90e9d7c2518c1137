"""A shard of share groups with a log that always works, and a clock that the test moves."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from share_coordinator.core.effects import (
    Answer,
    DropWindows,
    PruneLog,
    ReleaseGroupId,
    ReserveGroupId,
)
from share_coordinator.core.requests import (
    AskStates,
    AskStatesReply,
    EndTransaction,
    EndTransactionReply,
    GroupIdReserved,
    Reply,
    Request,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatReply,
)
from share_coordinator.core.settings import ShareSettings
from share_coordinator.core.shard import ShareDecision, ShareShard
from tidemark.codec.share_records import ShareRecord, decode, encode
from tidemark.model.assignment import assignment_of, pairs
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    InstantMs,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    WallMs,
)
from tidemark.model.share_state import (
    UNKNOWN_START,
    DeliveryState,
    LogEpochs,
    PendingBatch,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateRead,
    StateResult,
    StateSummary,
    TransactionKey,
    WriteState,
)
from tidemark.protocol.shard import Moment
from unit.broker.core.groups.consumer.worlds import FakeTopics

ReplyT = TypeVar("ReplyT")

G = "jobs"
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
ASSIGNMENT_MS = 1_000
START_WALL = 1_700_000_000_000

Partition = tuple[TopicId, int]


class World:
    """One shard and its log, as bytes; everything is committed at once. Group ids are reserved as
    soon as that is asked for, or refused with ``refuse_ids``, or neither while ``holds_ids``.
    """

    def __init__(self, settings: ShareSettings | None = None, **counts: int) -> None:
        self.settings = settings or ShareSettings()
        self.topics = FakeTopics(**counts)
        self.configs: dict[str, Mapping[str, str]] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.log_start = 0
        self.refuse_ids = ErrorCode.NONE
        self.holds_ids = False
        self.checks = True
        self.effects: list[object] = []
        self.released: list[str] = []
        """Released group ids."""
        self.answers: dict[int, Reply] = {}
        self.request_id = 0
        self.instant = 1_000
        self.shard = self.make_shard()
        self.perform(self.shard.loaded(self.now))

    def make_shard(self) -> ShareShard:
        return ShareShard(
            self.settings, lambda: self.topics, lambda group: self.configs.get(group, {})
        )

    @property
    def now(self) -> Moment:
        return Moment(InstantMs(self.instant), WallMs(START_WALL + self.instant))

    def perform(self, decision: ShareDecision) -> None:
        """Append, replay, commit; then do as the effects say."""
        first = len(self.log)
        for record in decision.records:
            self.log.append(encode(record))
            self.shard.replay(record, None)
        for offset, record in enumerate(decision.records, first):
            self.shard.located(record, Offset(offset))
        if self.checks:
            self.shard.check()
        for effect in decision.effects:
            match effect:
                case Answer():
                    self.answer(effect)
                case ReleaseGroupId():
                    self.released.append(effect.group_id)
                    self.answer(effect.then)
                case ReserveGroupId() if not self.holds_ids:
                    self.tell(GroupIdReserved(effect.group_id, self.refuse_ids))
                case PruneLog():
                    self.log_start = effect.before
                case _:
                    self.effects.append(effect)
        self.run_due()

    def answer(self, effect: Answer) -> None:
        assert effect.to not in self.answers, effect
        self.answers[effect.to] = effect.reply

    def run_due(self) -> None:
        while (due := self.shard.next_deadline()) is not None and due <= self.instant:
            self.perform(self.shard.wake(self.now))

    def tell(self, request: Request) -> int:
        self.request_id += 1
        request_id = self.request_id
        self.perform(self.shard.decide(request_id, request, self.now))
        return request_id

    def ask(self, request: Request, expected: type[ReplyT]) -> ReplyT:
        reply = self.answers.pop(self.tell(request))
        assert isinstance(reply, expected)
        return reply

    def sleep(self, ms: int) -> None:
        """Time passes, and what falls due happens when it is due."""
        end = self.instant + ms
        while (due := self.shard.next_deadline()) is not None and due <= end:
            self.instant = max(self.instant, due)
            self.perform(self.shard.wake(self.now))
        self.instant = end

    def reload(self) -> None:
        """Another owner takes over: it has the log, as bytes, from where it was pruned."""
        self.shard = self.replayed(self.log_start)
        self.answers.clear()
        self.perform(self.shard.loaded(self.now))

    def crash_within(self, request: Request, record_count: int) -> None:
        """Only the first records of a decision get into the log, and its owner is gone."""
        self.request_id += 1
        decision = self.shard.decide(self.request_id, request, self.now)
        self.log += map(encode, decision.records[:record_count])
        self.reload()

    def replayed(self, start: int) -> ShareShard:
        """A shard that has replayed the log from an offset on."""
        shard = self.make_shard()
        for offset, record in enumerate(self.records(start), start):
            shard.replay(record, None)
            shard.located(record, Offset(offset))
        return shard

    def records(self, start: int = 0) -> list[ShareRecord]:
        """The log, read back."""
        read = [decode(key, value) for key, value in self.log[start:]]
        assert None not in read
        return [record for record in read if record is not None]

    # -- members

    def beat(self, member: str, epoch: int, **said: Any) -> ShareGroupHeartbeatReply:
        group_id = said.pop("group_id", G)
        request = ShareGroupHeartbeat(
            group_id=group_id, member_id=member, member_epoch=epoch, **said
        )
        return self.ask(request, ShareGroupHeartbeatReply)

    def join(self, member: str, *topics: str, **said: Any) -> ShareGroupHeartbeatReply:
        return self.beat(member, 0, subscribed_topic_names=topics, **said)

    def settle(self, *members: str, group_id: str = G) -> dict[str, set[Partition]]:
        """After the next assignment, the partitions of each of these members."""
        self.sleep(ASSIGNMENT_MS)
        return {member: self.given_to(member, group_id) for member in members}

    def given_to(self, member: str, group_id: str = G) -> set[Partition]:
        """What a member has once it has sent a heartbeat in its epoch."""
        known = self.logged(group_id).members[member]
        self.beat(member, known.member_epoch, group_id=group_id)
        return set(pairs(self.logged(group_id).members[member].assigned))

    def logged(self, group_id: str = G) -> Any:
        return self.shard._groups[group_id].logged

    # -- share-partitions

    def key(self, topic: str, partition: int, group_id: str = G) -> SharePartitionKey:
        topic_id = self.topics.topic_id_of(topic)
        assert topic_id is not None
        return SharePartitionKey(group_id, topic_id, partition)

    def ask_states(
        self, *requests: ReadState | WriteState | ReadStateSummary, group_id: str = G
    ) -> tuple[StateRead | StateResult | StateSummary, ...]:
        return self.ask(AskStates(group_id, requests), AskStatesReply).answers

    def read(
        self, key: SharePartitionKey, leader_epoch: int = 0, log: LogEpochs | None = None
    ) -> StateRead:
        request = ReadState(key, LeaderEpoch(leader_epoch), log)
        (answer,) = self.ask_states(request, group_id=key.group_id)
        assert isinstance(answer, StateRead)
        return answer

    def write(self, key: SharePartitionKey, *batches: StateBatch, **said: Any) -> StateResult:
        request = a_write(key, self.epoch_of(key), *batches, **said)
        (answer,) = self.ask_states(request, group_id=key.group_id)
        assert isinstance(answer, StateResult)
        return answer

    def epoch_of(self, key: SharePartitionKey) -> int:
        state = self.shard._states.of(key)
        return state.state_epoch if state is not None else 0

    def end_transaction(self, open_from: int, *, commits: bool, producer: int = 7) -> None:
        """Transactions of a producer with an epoch below ``open_from`` have ended."""
        end = EndTransaction(ProducerId(producer), open_from, commits)
        self.ask(end, EndTransactionReply)

    def dropped(self) -> list[SharePartitionKey]:
        """Share-partitions whose leaders were asked to drop their windows."""
        found = [effect for effect in self.effects if isinstance(effect, DropWindows)]
        return [key for effect in found for key in effect.keys]


def joining(member: str, *topics: str, group_id: str = G, **said: Any) -> ShareGroupHeartbeat:
    return ShareGroupHeartbeat(
        group_id=group_id,
        member_id=member,
        member_epoch=0,
        subscribed_topic_names=topics,
        **said,
    )


def a_write(
    key: SharePartitionKey,
    state_epoch: int,
    *batches: StateBatch,
    start: int = UNKNOWN_START,
    leader_epoch: int = 0,
    complete: int = -1,
    pending: tuple[PendingBatch, ...] = (),
) -> WriteState:
    return WriteState(
        key,
        StateEpoch(state_epoch),
        LeaderEpoch(leader_epoch),
        Offset(start),
        batches,
        complete,
        pending,
    )


def batch(first: int, last: int, state: DeliveryState, count: int = 1) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count)


def pending(
    first: int,
    last: int,
    outcome: DeliveryState = DeliveryState.ACKNOWLEDGED,
    count: int = 1,
    *,
    producer: int = 7,
    epoch: int = 0,
    before: DeliveryState = DeliveryState.ACQUIRED,
) -> PendingBatch:
    transaction = TransactionKey(ProducerId(producer), ProducerEpoch(epoch))
    return PendingBatch(Offset(first), Offset(last), outcome, count, transaction, before)


def given(reply: ShareGroupHeartbeatReply) -> set[Partition]:
    """Partitions that a reply brings."""
    assert reply.error_code is ErrorCode.NONE, reply
    assert reply.assignment is not None, "the reply brings no assignment"
    return set(pairs(assignment_of(reply.assignment)))


def sizes(assignments: Mapping[str, Iterable[Partition]]) -> list[int]:
    """How many partitions each has, in order."""
    return sorted(len(list(partitions)) for partitions in assignments.values())
