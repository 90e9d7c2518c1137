"""Group ids that change between both protocols and offsets alone, under random members,
transactions, deletions, failovers and compaction, compared with a plain table of offsets.
"""

import random

import pytest
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DeletedTopic,
    DeleteGroup,
    DeleteGroupReply,
    JoinGroupReply,
    OffsetCommit,
    TopicsDeleted,
    TxnOffsetCommit,
)
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Writer
from unit.broker.core.groups.group_worlds import (
    ME,
    ORDERS,
    World,
    commit,
    committed,
    join,
    leave,
    position,
    sync,
    txn_commit,
)

PRODUCERS = (Writer(1, 0), Writer(2, 0))
NONE = ErrorCode.NONE


class Names:
    """One group id, one classic member, one KIP-848 member, two producers. The classic member is
    not a consumer, so that a group never has both.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.classic: tuple[str, int] | None = None
        self.epoch: int | None = None
        self.names = 0
        self.places = 0
        self.position = (-1, -1)
        """Offset, and position in the log."""
        self.pending: dict[Writer, tuple[int, int]] = {}
        self.seen: set[str] = set()

    def step(self) -> None:
        acts = (
            (self.join, 5),
            (self.leave, 3),
            (self.beat, 5),
            (self.leave_for_good, 3),
            (self.commit, 5),
            (self.commit_in_transaction, 4),
            (self.end_transaction, 3),
            (self.delete, 1),
            (self.delete_topic, 1),
            (self.fail_over, 2),
        )
        self.dice.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()
        self.check()

    # -- members

    def join(self) -> None:
        if self.classic is not None:
            return
        self.names += 1
        asked = self.world.send(join(new=f"m{self.names}", protocol_type="connect"))
        self.world.pass_time(0)
        reply = self.world.answer(asked, JoinGroupReply)
        if reply.error_code is NONE:
            self.classic = (reply.member_id, reply.generation_id)
            self.world.send(sync(*self.classic, {reply.member_id: b"all"}))
        else:
            assert reply.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert self.epoch is not None

    def leave(self) -> None:
        if self.classic is not None:
            self.world.send(leave(self.classic[0]))
            self.classic = None

    def beat(self, epoch: int | None = None) -> None:
        said = epoch if epoch is not None else self.epoch or 0
        asked = ConsumerGroupHeartbeat(
            group_id="g",
            member_id="c",
            new_member_id="",
            requester=ME,
            member_epoch=said,
            rebalance_timeout_ms=60_000 if said == 0 else -1,
            subscribed_topic_names=("orders",) if said == 0 else None,
            topic_partitions=() if said == 0 else None,
        )
        reply = self.world.ask(asked, ConsumerGroupHeartbeatReply)
        if reply.error_code is NONE:
            self.epoch = reply.member_epoch if said >= 0 else None
        else:
            assert reply.error_code is ErrorCode.GROUP_ID_NOT_FOUND
            assert self.classic is not None

    def leave_for_good(self) -> None:
        if self.epoch is not None:
            self.beat(-1)

    # -- offsets

    def who(self) -> tuple[str, int]:
        """A member that may commit, or none."""
        return self.classic or (("c", self.epoch) if self.epoch is not None else ("", -1))

    def commit(self) -> None:
        offset = self.dice.randrange(1_000)
        asked: OffsetCommit = commit(offset, *self.who())
        assert committed(self.world, asked) is NONE
        self.places += 1
        self.position = (offset, self.places)

    def commit_in_transaction(self) -> None:
        offset, producer = self.dice.randrange(1_000), self.dice.choice(PRODUCERS)
        asked: TxnOffsetCommit = txn_commit(offset, *self.who(), producer=producer)
        assert committed(self.world, asked) is NONE
        self.places += 1
        self.pending[producer] = (offset, self.places)

    def end_transaction(self) -> None:
        producer, commits = self.dice.choice(PRODUCERS), self.dice.random() < 0.7
        self.world.end_transaction(producer, commits=commits)
        ended = self.pending.pop(producer, None)
        if ended is not None and commits and ended[1] > self.position[1]:
            self.position = ended

    def delete(self) -> None:
        reply = self.world.ask(DeleteGroup("g"), DeleteGroupReply)
        if reply.error_code is NONE:
            self.forget()
        else:
            live = self.classic is not None or self.epoch is not None
            assert (reply.error_code is ErrorCode.NON_EMPTY_GROUP) == live

    def delete_topic(self) -> None:
        self.world.send(TopicsDeleted((DeletedTopic("orders", ORDERS),)))
        self.forget()

    def forget(self) -> None:
        self.position, self.pending = (-1, -1), {}

    def fail_over(self) -> None:
        if self.dice.random() < 0.6:
            self.world.compact(keeps_tombstones=self.dice.random() < 0.5)
        self.world.fail_over()

    def check(self) -> None:
        group = self.world.shard._groups.get("g")
        self.seen.add(type(group).__name__)
        if self.classic is not None:
            assert isinstance(group, ClassicGroup)
        if self.epoch is not None:
            assert isinstance(group, ConsumerGroup)
        assert position(self.world) == self.position[0]
        unstable = position(self.world, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert unstable == bool(self.pending)


@pytest.mark.feature("L10", "E07", "A11")
@pytest.mark.parametrize("seed", range(10))
def test_positions_are_those_of_a_plain_table_whatever_kind_the_group_is(seed: int) -> None:
    names = Names(seed)
    for _ in range(150):
        names.step()
    assert names.seen >= {"ClassicGroup", "ConsumerGroup"}
