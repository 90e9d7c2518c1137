"""Rules common to groups of both protocols."""

import pytest
from broker.core.groups import group_rules
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.effects import Answer, Membership
from broker.core.groups.group_rules import AnyGroup
from broker.core.groups.requests import SyncGroup, SyncGroupReply
from tidemark.codec.group_records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Writer
from unit.broker.core.groups.group_worlds import commit, txn_commit

EMPTY = GroupMetadataValue("consumer", 3, None, None, 1)
STABLE = GroupMetadataValue(
    "consumer", 1, "range", "a", 1, (MemberMetadata("a", None, "c", "h", 1, 1, b"", b"all"),)
)


@pytest.mark.feature("E14")
@pytest.mark.parametrize(
    ("generation", "error_code", "in_transaction"),
    [
        (-1, ErrorCode.NONE, ErrorCode.NONE),
        (3, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_name_that_nobody_has_used(
    generation: int, error_code: ErrorCode, in_transaction: ErrorCode
) -> None:
    assert group_rules.commit_refused(None, commit(1, "a", generation)) is error_code
    assert group_rules.txn_commit_refused(None, txn_commit(1, "a", generation)) is in_transaction


@pytest.mark.parametrize("group", [ClassicGroup("g"), ConsumerGroup("g")])
def test_in_a_group_without_members_nobody_in_particular_commits(
    group: AnyGroup,
) -> None:
    assert group_rules.commit_refused(group, commit(1)) is ErrorCode.NONE
    assert group_rules.commit_refused(group, commit(1, "a", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group_rules.txn_commit_refused(group, txn_commit(1)) is ErrorCode.NONE


@pytest.mark.parametrize("producer", [Writer(-1, 0), Writer(7, -1)])
def test_a_transaction_has_a_producer(producer: Writer) -> None:
    refused = group_rules.txn_commit_refused(None, txn_commit(1, producer=producer))
    assert refused is ErrorCode.INVALID_PRODUCER_ID_MAPPING


GIVEN = SyncGroupReply(error_code=ErrorCode.NONE, assignment=b"orders-0")


@pytest.mark.feature("E14")
@pytest.mark.parametrize(
    ("member_id", "generation", "error_code"),
    [
        ("a", 1, ErrorCode.NONE),
        ("gone", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 0, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_member_that_is_gone_when_its_assignment_is_committed_does_not_get_it(
    member_id: str, generation: int, error_code: ErrorCode
) -> None:
    group = ClassicGroup("g")
    group.replay(STABLE)
    answer = Answer(1, GIVEN, Membership("g", member_id, generation))
    reply = group_rules.reply_now({"g": group}, answer)
    assert reply == (
        GIVEN if error_code is ErrorCode.NONE else SyncGroupReply(error_code=error_code)
    )


def test_a_reply_at_once_that_assigns_partitions_confirms_its_member() -> None:
    """Of a classic member in a group of KIP-848, too."""
    asked = SyncGroup(group_id="g", generation_id=3, member_id="a")
    assert group_rules.confirmed_by(asked, GIVEN) == Membership("g", "a", 3)
    refused = SyncGroupReply(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert group_rules.confirmed_by(asked, refused) is None


def test_a_group_that_is_gone_assigns_nothing() -> None:
    answer = Answer(1, GIVEN, Membership("g", "a", 1))
    unknown = SyncGroupReply(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert group_rules.reply_now({}, answer) == unknown
    assert group_rules.reply_now({"g": ConsumerGroup("g")}, answer) == unknown
    assert group_rules.reply_now({}, Answer(1, GIVEN)) == GIVEN


def test_only_what_is_in_the_log_needs_an_end() -> None:
    group = ClassicGroup("g")
    assert group_rules.tombstones(group) == ()
    group.replay(EMPTY)
    assert group_rules.tombstones(group) == (GroupMetadataRecord("g", None),)


def test_who_is_about_to_come_is_not_left_alone() -> None:
    group = ClassicGroup("g")
    assert group_rules.is_unused(group)
    group.pending.add("a")
    assert not group_rules.is_unused(group)
    assert group_rules.is_unused(ConsumerGroup("g"))


@pytest.mark.parametrize("group", [ClassicGroup("g"), ConsumerGroup("g")])
def test_nobody_reads_nothing(group: AnyGroup) -> None:
    assert not group_rules.is_subscribed(group)("orders")
