"""Offsets: committed, pending in transactions, deleted, expired."""

import pytest
from broker.core.groups.offsets import Offsets
from broker.core.groups.requests import (
    DeletedTopic,
    GroupSettings,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TopicOffsets,
    TopicPartitions,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.group_records import OffsetCommitRecord, OffsetCommitValue
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId, WallMs
from tidemark.model.topics import TopicPartition
from tidemark.protocol.shard import Writer

DAY_MS = 24 * 3_600_000
SETTINGS = GroupSettings(offsets_retention_minutes=24 * 60)
T, U = TopicId(b"t" * 16), TopicId(b"u" * 16)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, TWO = Writer(1, 0), Writer(2, 0)
NOW = WallMs(1_000)


def a_table(*records: OffsetCommitRecord) -> Offsets:
    table = Offsets(SETTINGS)
    for record in records:
        table.replay(record, None)
    return table


def at(
    offset: int | None,
    partition: int = 0,
    *,
    group: str = "g",
    topic: str = "t",
    when: int = 0,
    expires: int = -1,
    topic_id: TopicId = NO_TOPIC_ID,
) -> OffsetCommitRecord:
    value = None
    if offset is not None:
        value = OffsetCommitValue(offset, 3, "", when, expires, topic_id)
    return OffsetCommitRecord(group, topic, partition, value)


def where(table: Offsets, partition: TopicPartition = T0, group: str = "g") -> int | None:
    table.check()
    value = table.position(group, partition)
    return None if value is None else value.offset


def asked(topic_id: TopicId = NO_TOPIC_ID, *, stable: bool = False) -> OffsetFetch:
    topics = (TopicPartitions("t", topic_id, (0, 1)),)
    return OffsetFetch(group_id="g", topics=topics, require_stable=stable)


def fetched(table: Offsets, request: OffsetFetch) -> list[tuple[int, ErrorCode]]:
    [topic] = table.fetch(request).topics
    return [(one.offset, one.error_code) for one in topic.offsets]


@pytest.mark.feature("A08", "D05", "E08")
def test_a_group_has_one_number_for_each_partition() -> None:
    table = a_table(at(5), at(7, 1), at(9), at(1, group="h"))
    assert (where(table), where(table, T1), where(table, group="h")) == (9, 7, 1)


@pytest.mark.feature("A10", "E09")
def test_what_was_committed_last_is_fetched() -> None:
    table = a_table(at(5), at(9))
    assert fetched(table, asked()) == [(9, ErrorCode.NONE), (-1, ErrorCode.NONE)]


def test_without_naming_topics_all_positions_are_fetched() -> None:
    table = a_table(at(5, 1), at(7, 0), at(9, topic="s"), at(1, group="h"))
    reply = table.fetch(OffsetFetch(group_id="g", topics=None))
    found = [(one.topic, [(it.partition, it.offset) for it in one.offsets]) for one in reply.topics]
    assert found == [("s", [(0, 9)]), ("t", [(0, 7), (1, 5)])]


def test_a_position_in_an_earlier_topic_of_that_name_is_none() -> None:
    table = a_table(at(5, topic_id=T), at(7, 1))
    none, any_topic = (-1, ErrorCode.NONE), (7, ErrorCode.NONE)
    assert fetched(table, asked(U)) == [none, any_topic]
    assert fetched(table, asked(T)) == [(5, ErrorCode.NONE), any_topic]
    assert fetched(table, asked()) == [(5, ErrorCode.NONE), any_topic]


def two(_: TopicId) -> int:
    return 2


def test_metadata_has_a_bound() -> None:
    wanted = (OffsetToCommit(0, 5, 3, "x" * 4_096), OffsetToCommit(1, 5, 3, "x" * 4_097))
    records, reply = a_table().commit("g", [TopicOffsets("t", T, wanted)], NOW, two)
    assert [one.partition for one in records] == [0]
    codes = [one.error_code for one in reply.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_partition_that_does_not_exist_has_no_position() -> None:
    wanted = tuple(OffsetToCommit(number, 5, 3, "m") for number in (-1, 0, 1, 2))
    records, reply = a_table().commit("g", [TopicOffsets("t", T, wanted)], NOW, two)
    assert [one.partition for one in records] == [0, 1]
    codes = [one.error_code for one in reply.topics[0].partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [unknown, ErrorCode.NONE, ErrorCode.NONE, unknown]


@pytest.mark.parametrize(
    ("retention_ms", "expires"), [(-1, -1), (500, 1_500), (2**63 - 1, 2**63 - 1)]
)
def test_a_record_says_when_it_was_made(retention_ms: int, expires: int) -> None:
    wanted = [TopicOffsets("t", T, (OffsetToCommit(0, 5, 3, "m"),))]
    [record], _ = a_table().commit("g", wanted, NOW, two, retention_ms)
    assert record.value == OffsetCommitValue(5, 3, "m", NOW, expires, T)


# -- transactions: pending until they end


@pytest.mark.feature("L10")
@pytest.mark.parametrize(("commits", "after"), [(True, 9), (False, 5)])
def test_a_transaction_moves_the_group_when_it_commits(commits: bool, after: int) -> None:
    table = a_table(at(5))
    table.replay(at(9), ONE)
    assert where(table) == 5
    table.replay_end(Writer(ONE.producer_id, 1), commits=commits)
    assert where(table) == after
    assert table.is_stable("g", T0)


@pytest.mark.feature("L10")
def test_who_wants_a_stable_position_is_told_to_wait() -> None:
    table = a_table(at(5), at(6, 1))
    table.replay(at(9), ONE)
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched(table, asked(stable=True)) == [unstable, (6, ErrorCode.NONE)]
    assert fetched(table, asked()) == [(5, ErrorCode.NONE), (6, ErrorCode.NONE)]


@pytest.mark.feature("L10")
def test_the_later_record_wins_whenever_its_transaction_ends() -> None:
    table = a_table()
    table.replay(at(9), ONE)
    table.replay(at(11), TWO)
    table.replay(at(12), None)
    table.replay_end(TWO, commits=True)
    table.replay_end(ONE, commits=True)
    assert where(table) == 12


def test_transactions_are_each_their_own() -> None:
    table = a_table()
    table.replay(at(9), ONE)
    table.replay(at(11, 1), TWO)
    table.replay_end(ONE, commits=False)
    table.replay_end(TWO, commits=True)
    assert (where(table), where(table, T1)) == (None, 11)
    table.replay_end(TWO, commits=True)  # a marker with nothing to end


def test_a_tombstone_ends_what_is_pending_too() -> None:
    table = a_table(at(5))
    table.replay(at(9), ONE)
    table.replay(at(None), None)
    assert not table.has_any("g")
    table.replay_end(ONE, commits=True)
    assert where(table) is None


# -- deleting


def test_what_members_read_is_not_deleted() -> None:
    table = a_table(at(5), at(6, topic="s"))
    topics = (TopicPartitions("t", T, (0, 2)), TopicPartitions("s", U, (0, 1, 2, -1)))
    asked = OffsetDelete(group_id="g", topics=topics)
    records, reply = table.delete(asked, lambda one: one == "t", lambda _: 2)
    assert records == [at(None, topic="s")]
    codes = [[one.error_code for one in topic.partitions] for topic in reply.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, unknown],
        [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown],
    ]


def test_a_group_is_deleted_with_what_is_pending() -> None:
    table = a_table(at(5))
    table.replay(at(9, 1), ONE)
    assert table.delete_all("g") == [at(None), at(None, 1)]


def test_positions_go_with_their_topic_but_not_with_its_namesake() -> None:
    table = a_table(at(5, topic_id=T), at(6, 1, topic_id=U), at(7, topic="s"), at(8, group="h"))
    assert table.delete_topics([DeletedTopic("t", T)]) == [at(None), at(None, group="h")]


# -- expiry, by the rules of KIP-211


@pytest.mark.parametrize(
    ("record", "now", "empty_since", "gone"),
    [
        (at(5, when=0), DAY_MS - 1, None, False),
        (at(5, when=0), DAY_MS, None, True),
        (at(5, when=0), DAY_MS, 1, False),  # from when its group became empty
        (at(5, when=DAY_MS), DAY_MS, 0, True),
        (at(5, when=0, expires=10), 9, None, False),  # by its client's own retention
        (at(5, when=0, expires=10), 10, None, True),
    ],
)
def test_positions_outlive_their_retention_by_nothing(
    record: OffsetCommitRecord, now: int, empty_since: int | None, gone: bool
) -> None:
    since = None if empty_since is None else WallMs(empty_since)
    expired = a_table(record).expired(
        "g", WallMs(now), empty_since=since, is_subscribed=lambda _: False
    )
    assert expired == ([at(None)] if gone else [])


def test_what_is_read_or_about_to_move_does_not_expire() -> None:
    table = a_table(at(5), at(5, 1), at(5, topic="s"))
    table.replay(at(6, 1), ONE)
    expired = table.expired(
        "g", WallMs(DAY_MS), empty_since=None, is_subscribed=lambda one: one == "s"
    )
    assert expired == [at(None)]
    assert not table.is_all("g", expired)


def test_a_group_with_nothing_left_is_seen() -> None:
    table = a_table(at(5), at(6, 1))
    everything = table.delete_all("g")
    assert table.is_all("g", everything)
    table.replay(at(7, 2), ONE)
    assert not table.is_all("g", everything)


# -- against a plain twin

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 1), st.sampled_from([None, ONE, TWO])),
        st.tuples(st.just("drop"), st.integers(0, 1), st.none()),
        st.tuples(st.just("end"), st.integers(0, 1), st.sampled_from([ONE, TWO])),
    ),
    max_size=30,
)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_agrees_with_a_walk_over_the_whole_log(
    steps: list[tuple[str, int, Writer | None]],
) -> None:
    table = a_table()
    for number, (act, partition, writer) in enumerate(steps):
        if act == "put":
            table.replay(at(number, partition), writer)
        elif act == "drop":
            table.replay(at(None, partition), None)
        elif writer is not None:
            table.replay_end(writer, commits=bool(partition))
    assert (where(table) or -1, where(table, T1) or -1) == plain(steps)


def plain(steps: list[tuple[str, int, Writer | None]]) -> tuple[int, int]:
    """Slow and obvious: the last record that counts, unless a tombstone follows it."""
    found = []
    for wanted in (0, 1):
        offset = -1
        for number, (act, partition, writer) in enumerate(steps):
            if act == "drop" and partition == wanted:
                offset = -1
            if act == "put" and partition == wanted and counts(steps, number, writer):
                offset = number or -1
        found.append(offset)
    return found[0], found[1]


def counts(steps: list[tuple[str, int, Writer | None]], number: int, writer: Writer | None) -> bool:
    if writer is None:
        return True
    for act, commits, who in steps[number:]:
        if act == "end" and who == writer:
            return bool(commits)
    return False
