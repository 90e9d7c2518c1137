"""GroupShard: the protocol of a group, administration, offsets over their whole life, and the
log.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from broker.core.groups.classic.deadlines import Key, Kind
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DeletedTopic,
    DeleteGroup,
    DeleteGroupReply,
    DescribeGroup,
    DescribeGroupReply,
    JoinGroupReply,
    ListGroups,
    ListGroupsReply,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
    SyncGroupReply,
    TopicOffsets,
    TopicPartitions,
    TopicsDeleted,
    TopicsDeletedReply,
    TxnOffsetCommit,
)
from broker.core.groups.shard import EXPIRED_AT_ONCE_MAX
from tidemark.codec import group_records
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId
from tidemark.protocol.shard import Writer
from unit.broker.core.groups.group_worlds import (
    ME,
    ORDERS,
    PRODUCER,
    World,
    commit,
    committed,
    heard,
    join,
    joined,
    left,
    position,
    stable,
    sync,
    txn_commit,
)
from unit.broker.core.groups.live_groups import classic_world

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS
NONE = ErrorCode.NONE


def heartbeat(member_id: str = "c", epoch: int = 0, group_id: str = "g") -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(
        group_id=group_id,
        member_id=member_id,
        new_member_id="n",
        requester=ME,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=("orders",) if epoch == 0 else None,
        topic_partitions=() if epoch == 0 else None,
        client_id="client",
        client_host="/h",
    )


def beats(
    world: World, member_id: str = "c", epoch: int = 0, group_id: str = "g"
) -> ConsumerGroupHeartbeatReply:
    return world.ask(heartbeat(member_id, epoch, group_id), ConsumerGroupHeartbeatReply)


@pytest.mark.feature("E14")
def test_a_heartbeat_that_is_committed_after_the_session_assigns_nothing() -> None:
    """Another member has its partitions by then."""
    world = World()
    world.commits = False
    late = world.send(heartbeat("late"))
    world.pass_time(world.settings.group_consumer_session_timeout_ms)
    other = world.send(heartbeat("other"))
    world.commit_all()
    (all_of_them,) = world.answer(other, ConsumerGroupHeartbeatReply).assignment or ()
    assert all_of_them.partitions == (0, 1, 2, 3)
    refused = world.answer(late, ConsumerGroupHeartbeatReply)
    assert (refused.error_code, refused.assignment) == (ErrorCode.UNKNOWN_MEMBER_ID, None)


def state(world: World, group_id: str = "g") -> str:
    return world.ask(DescribeGroup(group_id), DescribeGroupReply).state


def listed(world: World, *states: str, types: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [tuple(one) for one in world.ask(ListGroups(states, types), ListGroupsReply).groups]


def deleted(world: World, group_id: str = "g") -> ErrorCode:
    return world.ask(DeleteGroup(group_id), DeleteGroupReply).error_code


# -- groups that have only offsets


@pytest.mark.feature("A08", "A10", "E04", "E09")
def test_anybody_commits_for_a_group_without_members() -> None:
    world = World()
    assert position(world) == -1
    assert committed(world, commit(42)) is NONE
    assert position(world) == 42
    assert (state(world), listed(world)) == ("Empty", [("g", "", "Empty", "classic")])


@pytest.mark.feature("A10", "A11", "E08")
def test_positions_survive_a_failover() -> None:
    world = World()
    committed(world, commit(41))
    committed(world, commit(42))
    world.fail_over()
    assert position(world) == 42


@pytest.mark.feature("E07", "D05", "E13")
def test_after_compaction_the_last_position_of_each_partition_is_left() -> None:
    world = World()
    for offset in range(10):
        committed(world, commit(offset))
        committed(world, commit(offset + 100, group_id="other"))
    world.compact()
    assert len(world.log) == 2
    world.fail_over()
    assert (position(world), position(world, "other")) == (9, 109)


@pytest.mark.feature("E13")
def test_records_are_keyed_by_group() -> None:
    world = World()
    committed(world, commit(1))
    stable(world, "a")
    keys = [group_records.decode(*record) for record, _, _ in world.log if record is not None]
    assert {one.group_id for one in keys if one is not None} == {"g"}


@pytest.mark.parametrize(
    ("generation", "error_code"), [(-1, NONE), (0, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_a_group_that_does_not_exist(
    generation: int, error_code: ErrorCode
) -> None:
    assert committed(World(), commit(1, "a", generation)) is error_code


# -- transactions


@pytest.mark.feature("L10")
@pytest.mark.parametrize(("commits", "after"), [(True, 9), (False, 5)])
def test_positions_in_a_transaction_count_when_it_commits(commits: bool, after: int) -> None:
    world = World()
    committed(world, commit(5))
    assert committed(world, txn_commit(9)) is NONE
    assert world.log[-1][1] == PRODUCER
    assert (position(world), position(world, stable=True)) == (
        5,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
    world.end_transaction(PRODUCER, commits=commits)
    assert position(world, stable=True) == after


@pytest.mark.feature("L10")
def test_a_transaction_that_is_open_survives_a_failover() -> None:
    world = World()
    committed(world, txn_commit(9))
    world.fail_over()
    assert position(world, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end_transaction(Writer(PRODUCER.producer_id, 1), commits=True)
    assert position(world, stable=True) == 9
    world.fail_over()
    assert position(world, stable=True) == 9


def test_a_transaction_of_an_unknown_generation_is_refused() -> None:
    assert committed(World(), txn_commit(9, "a", 3)) is ErrorCode.ILLEGAL_GENERATION


# -- expiry


def test_positions_of_consumers_without_a_group_expire_after_their_last_commit() -> None:
    world = World()
    committed(world, commit(5))
    world.pass_time(WEEK_MS - 1)
    assert position(world) == 5
    world.pass_time(world.settings.offsets_retention_check_interval_ms)
    assert (position(world), listed(world)) == (-1, [])


def test_positions_of_a_group_expire_after_its_last_member() -> None:
    world = World()
    stable(world, "a")
    committed(world, commit(5, "a", 1))
    for _ in range(10):  # alive much longer than the retention, and reading
        for _ in range(3):
            world.pass_time(9_000)
            heard(world, "a", 1)
        world.now += DAY_MS
        heard(world, "a", 1)
    world.pass_time(0)
    assert position(world) == 5
    left(world, "a")
    world.pass_time(WEEK_MS - DAY_MS)
    assert position(world) == 5
    world.pass_time(DAY_MS + world.settings.offsets_retention_check_interval_ms)
    assert (position(world), state(world)) == (-1, "Dead")
    world.fail_over()
    assert (position(world), state(world)) == (-1, "Dead")


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_while_it_is_not_known_what_members_read_nothing_expires(protocol_type: str) -> None:
    world = World()
    committed(world, commit(5))
    asked = world.send(join(new="a", protocol_type=protocol_type, session_ms=1_800_000))
    world.pass_time(0)
    if protocol_type == "connect":
        world.send(sync("a", joined(world, asked).generation_id, {"a": b"x"}))
    world.now += WEEK_MS
    world.shard._deadlines.set(Key(Kind.EXPIRY, ""), InstantMs(0))
    assert world.shard.wake(world.moment).records == ()


def test_an_empty_group_is_kept_for_a_member_that_is_about_to_join() -> None:
    world = World()
    stable(world, "a")
    left(world, "a")
    world.pass_time(world.settings.offsets_retention_check_interval_ms - 5_000)
    world.send(join(new="b", known_first=True))
    world.pass_time(5_000)
    again = world.send(join("b"))
    world.pass_time(0)
    assert joined(world, again).generation_id == 3


def test_a_client_may_choose_how_long() -> None:
    world = World()
    committed(world, commit(5, retention_ms=1_000))
    world.pass_time(world.settings.offsets_retention_check_interval_ms)
    assert position(world) == -1


def test_very_many_old_positions_go_a_part_at_a_time() -> None:
    world = World()
    world.topics.partitions = EXPIRED_AT_ONCE_MAX
    many = tuple(OffsetToCommit(number, 1) for number in range(EXPIRED_AT_ONCE_MAX))
    for group_id in "abc":
        topics = (TopicOffsets("orders", ORDERS, many),)
        world.send(OffsetCommit(group_id=group_id, topics=topics))
    world.now += WEEK_MS
    sizes = [len(world.shard.wake(world.moment).records)]
    assert sizes == [EXPIRED_AT_ONCE_MAX]
    assert world.shard.next_deadline() == world.now


# -- deleting


def test_a_group_is_deleted_with_its_positions() -> None:
    world = World()
    stable(world, "a")
    committed(world, commit(5, "a", 1))
    assert deleted(world) is ErrorCode.NON_EMPTY_GROUP
    left(world, "a")
    assert deleted(world) is NONE
    assert (state(world), position(world)) == ("Dead", -1)
    assert deleted(world) is ErrorCode.GROUP_ID_NOT_FOUND
    world.fail_over()
    assert (state(world), listed(world)) == ("Dead", [])


def forget(world: World, group_id: str = "g") -> ErrorCode:
    topics = (TopicPartitions("orders", ORDERS, (0,)),)
    reply = world.ask(OffsetDelete(group_id=group_id, topics=topics), OffsetDeleteReply)
    if reply.error_code is not NONE:
        return reply.error_code
    return reply.topics[0].partitions[0].error_code


def test_positions_are_deleted_where_nobody_reads() -> None:
    world = World()
    assert forget(world) is ErrorCode.GROUP_ID_NOT_FOUND
    stable(world, "a")
    committed(world, commit(5, "a", 1))
    assert forget(world) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    left(world, "a")
    assert forget(world) is NONE
    assert position(world) == -1


def test_what_members_of_another_type_read_is_not_known() -> None:
    world = World()
    asked = world.send(join(new="a", protocol_type="connect"))
    world.pass_time(0)
    world.send(sync("a", joined(world, asked).generation_id, {"a": b"x"}))
    assert forget(world) is ErrorCode.NON_EMPTY_GROUP


def test_positions_go_with_their_topic() -> None:
    world = World()
    committed(world, commit(5))
    gone = TopicsDeleted((DeletedTopic("orders", ORDERS),))
    assert world.ask(gone, TopicsDeletedReply).error_code is NONE
    assert (position(world), listed(world)) == (-1, [])


@pytest.mark.parametrize("late", [commit(5), txn_commit(5)], ids=["alone", "in a transaction"])
def test_a_commit_that_comes_after_its_topic_was_deleted_is_refused(
    late: OffsetCommit | TxnOffsetCommit,
) -> None:
    world = World()
    world.topics.orders = None
    world.send(TopicsDeleted((DeletedTopic("orders", ORDERS),)))
    assert committed(world, late) is ErrorCode.UNKNOWN_TOPIC_ID
    world.end_transaction(PRODUCER, commits=True)
    assert (position(world), world.shard.state[1].count) == (-1, 0)


def test_a_new_coordinator_drops_positions_of_topics_deleted_meanwhile() -> None:
    world = World()
    committed(world, commit(5))
    committed(world, txn_commit(6))
    world.topics.orders = None
    world.fail_over()
    assert (position(world), world.shard.state[1].count, listed(world)) == (-1, 0, [])
    world.end_transaction(PRODUCER, commits=True)
    assert world.shard.state[1].count == 0


def test_a_topic_made_again_keeps_what_was_committed_of_it() -> None:
    world = World()
    committed(world, commit(5))
    world.topics.orders = TopicId(bytes(16 * [9]))
    world.fail_over()
    assert world.shard.state[1].count == 0
    again = (TopicOffsets("orders", world.topics.orders, (OffsetToCommit(0, 1),)),)
    committed(world, OffsetCommit(group_id="g", topics=again))
    world.fail_over()
    assert world.shard.state[1].count == 1


# -- listing and describing


def test_what_metrics_show() -> None:
    world = World()
    committed(world, commit(5))
    committed(world, commit(6, group_id="h"))
    assert world.shard.state[1].count == 2
    assert [one.group_id for one in world.shard.listed()] == ["g", "h"]


def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    committed(world, commit(5, group_id="simple"))
    stable(world, "a")
    beats(world, group_id="new")
    lines = {one[0]: one for one in listed(world)}
    assert lines["g"] == ("g", "consumer", "Stable", "classic")
    assert lines["new"][3] == "consumer"
    assert lines["simple"][2] == "Empty"
    assert [one[0] for one in listed(world, "stable", types=("Classic",))] == ["g"]
    assert [one[0] for one in listed(world, types=("consumer",))] == ["new"]
    assert listed(world, "dead") == []


def test_members_are_described_with_their_bytes_once_all_is_settled() -> None:
    world = World()
    stable(world, "a", "b")
    reply = world.ask(DescribeGroup("g"), DescribeGroupReply)
    assert (reply.state, reply.protocol_type, reply.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(one.member_id, one.assignment) for one in reply.members] == [("a", b"a"), ("b", b"b")]
    world.send(join("a"))
    reply = world.ask(DescribeGroup("g"), DescribeGroupReply)
    assert (reply.protocol_name, reply.members[0].assignment) == ("", b"")


def test_what_does_not_exist_is_dead() -> None:
    reply = World().ask(DescribeGroup("g"), DescribeGroupReply)
    assert (reply.error_code, reply.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert reply.error_message == "Group g not found."


def test_a_description_names_the_type_that_a_group_does_not_have() -> None:
    world = World()
    stable(world, "a")
    of_classic = world.ask(ConsumerGroupDescribe("g"), ConsumerGroupDescribeReply)
    of_nothing = world.ask(ConsumerGroupDescribe("h"), ConsumerGroupDescribeReply)
    assert of_classic.error_message == "Group g is not a consumer group."
    assert of_nothing.error_message == "Group h not found."


# -- groups of both protocols


def test_a_live_group_of_other_clients_refuses_members_of_the_other_kind() -> None:
    world = World()
    asked = world.send(join(new="a", protocol_type="connect"))
    world.pass_time(0)
    assert joined(world, asked).error_code is NONE
    assert beats(world).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert beats(world, group_id="new").error_code is NONE
    other = join(new="a", group_id="new", protocol_type="connect")
    assert world.ask(other, JoinGroupReply).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(world, "new") == "Dead"


def test_members_of_the_other_kind_are_unknown() -> None:
    world = World()
    beats(world)
    assert heard(world, "c", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.ask(sync("c", 1), SyncGroupReply).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_is_not_in_a_group_that_does_not_exist_must_join() -> None:
    assert beats(World(), epoch=3).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_positions() -> None:
    world = World()
    stable(world, "a")
    committed(world, commit(5, "a", 1))
    left(world, "a")
    assert beats(world).error_code is NONE
    for _ in range(2):
        assert (position(world), listed(world)[0][3]) == (5, "consumer")
        assert state(world) == "Dead"  # for DescribeGroups of classic groups
        world.fail_over()


def test_an_empty_consumer_group_becomes_a_classic_group() -> None:
    world = World()
    epoch = beats(world).member_epoch
    beats(world, epoch=-1)
    assert epoch == 1
    generation = stable(world, "a")
    for _ in range(2):
        assert (state(world), listed(world)[0][3]) == ("Stable", "classic")
        assert heard(world, "a", generation) is NONE
        described = world.ask(ConsumerGroupDescribe("g"), ConsumerGroupDescribeReply)
        assert described.error_code is ErrorCode.GROUP_ID_NOT_FOUND
        world.fail_over()


def be_classic(world: World) -> None:
    stable(world, "a")
    left(world, "a")


def be_consumer(world: World) -> None:
    beats(world)
    beats(world, epoch=-1)


@pytest.mark.parametrize(
    "lives",
    [(be_classic, be_consumer), (be_consumer, be_classic), (be_consumer, be_classic, be_consumer)],
)
def test_nothing_of_its_former_kinds_comes_back_when_a_group_is_deleted(
    lives: tuple[Callable[[World], None], ...],
) -> None:
    world = World()
    for live in lives:
        live(world)
    assert deleted(world) is NONE
    world.compact(keeps_tombstones=False)
    world.fail_over()
    assert (listed(world), world.log) == ([], [])


def test_who_is_refused_changes_no_kind() -> None:
    world = World()
    beats(world)
    beats(world, epoch=-1)
    asked = world.send(join(new="a", protocols=()))
    assert joined(world, asked).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert listed(world)[0][3] == "consumer"


@pytest.mark.feature("E14")
@pytest.mark.parametrize(
    ("member_id", "epoch", "error_code", "in_transaction"),
    [
        ("c", 1, NONE, NONE),
        ("c", 0, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION),
        ("d", 1, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID, NONE),
    ],
)
def test_members_of_a_consumer_group_commit_in_their_epoch(
    member_id: str, epoch: int, error_code: ErrorCode, in_transaction: ErrorCode
) -> None:
    world = World()
    beats(world)
    assert committed(world, commit(5, member_id, epoch)) is error_code
    assert committed(world, txn_commit(5, member_id, epoch)) is in_transaction


@pytest.mark.parametrize(
    ("member_id", "epoch", "error_code"),
    [
        ("c", 1, NONE),
        (None, -1, NONE),
        ("c", 7, ErrorCode.STALE_MEMBER_EPOCH),
        ("d", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_of_a_consumer_group_ask_in_their_epoch(
    member_id: str | None, epoch: int, error_code: ErrorCode
) -> None:
    world = World()
    beats(world)
    asked = OffsetFetch(group_id="g", topics=None, member_id=member_id, member_epoch=epoch)
    assert world.ask(asked, OffsetFetchReply).error_code is error_code


def test_a_consumer_group_without_members_or_positions_is_forgotten_in_time() -> None:
    world = World()
    beats(world)
    world.pass_time(world.settings.group_consumer_session_timeout_ms)
    assert listed(world, "empty") == [("g", "consumer", "Empty", "consumer")]
    world.pass_time(world.settings.offsets_retention_check_interval_ms)
    assert listed(world) == []
    world.fail_over()
    assert listed(world) == []


def test_an_empty_consumer_group_is_deleted() -> None:
    world = World()
    beats(world)
    committed(world, commit(5, "c", 1))
    assert deleted(world) is ErrorCode.NON_EMPTY_GROUP
    assert forget(world) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    beats(world, epoch=-1)
    assert deleted(world) is NONE
    assert (listed(world), position(world)) == ([], -1)


def test_sessions_of_consumer_groups_begin_anew_after_a_failover() -> None:
    world = World()
    beats(world)
    session_ms = world.settings.group_consumer_session_timeout_ms
    world.pass_time(session_ms - 1)
    world.fail_over()
    world.pass_time(session_ms - 1)
    assert beats(world, epoch=1).error_code is NONE


def test_what_a_group_sets_is_in_force_from_the_next_heartbeat() -> None:
    world = World()
    beats(world)
    beats(world, "d", group_id="other")
    world.configs["g"] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    assert beats(world, epoch=1).heartbeat_interval_ms == 7_000
    assert beats(world, "d", 1, "other").heartbeat_interval_ms == 5_000
    world.pass_time(49_999)
    assert beats(world, epoch=1).error_code is NONE
    assert beats(world, "d", 1, "other").error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_groups_own_session_holds_after_a_failover() -> None:
    world = World()
    beats(world)
    world.configs["g"] = {"consumer.session.timeout.ms": "6000"}
    world.fail_over()
    world.pass_time(6_000)
    assert beats(world, epoch=1).error_code is ErrorCode.UNKNOWN_MEMBER_ID


# -- patterns


@pytest.mark.feature("SE14")
@pytest.mark.parametrize("converts", [False, True])
def test_a_pattern_matches_what_the_sender_of_the_heartbeat_may_describe(*, converts: bool) -> None:
    world = classic_world("m") if converts else World()
    joins = replace(heartbeat(), subscribed_topic_names=(), subscribed_topic_regex=".*")
    world.hidden.add((ME, "orders"))
    assert world.ask(joins, ConsumerGroupHeartbeatReply).error_code is NONE
    group = world.shard.state[0]["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.logged.matches == {".*": set()}
    world.hidden.clear()
    other = replace(joins, member_id="d", subscribed_topic_regex="o.*")
    assert world.ask(other, ConsumerGroupHeartbeatReply).error_code is NONE
    assert group.logged.matches == {".*": {"orders"}, "o.*": {"orders"}}
