"""Rules common to groups of both protocols."""

import pytest
from broker.core.groups import group_rules
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.group_rules import AnyGroup
from tidemark.codec.group_records import GroupMetadataRecord, GroupMetadataValue
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Writer
from unit.broker.core.groups.group_worlds import commit, txn_commit

EMPTY = GroupMetadataValue("consumer", 3, None, None, 1)


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
