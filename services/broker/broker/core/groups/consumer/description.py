"""Description of a KIP-848 group, as admin clients see it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tidemark.model.assignment import Assignment
from tidemark.model.errors import ErrorCode

from broker.core.groups.consumer.assignors import ASSIGNORS
from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.consumer.state import ConsumerGroupState
from broker.core.groups.requests import (
    ConsumerGroupDescribeReply,
    DescribedConsumer,
    GroupSettings,
    TopicPartitions,
    Topics,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""Kafka's numbers of the protocols that a member may use."""


def supported_assignors(settings: GroupSettings) -> tuple[str, ...]:
    """Return the configured assignors that exist, the default first."""
    names = tuple(name for name in settings.group_consumer_assignors if name in ASSIGNORS)
    assert names, f"no assignor of {settings.group_consumer_assignors} is known"
    return names


def preferred_assignor(members: Iterable[ConsumerMember], settings: GroupSettings) -> str:
    """Return the assignor that most members request; on a tie, the first configured."""
    votes = Counter(member.about.server_assignor for member in members)
    names = supported_assignors(settings)
    return max(names, key=lambda name: (votes[name], -names.index(name)))


def described(
    state: ConsumerGroupState, topics: Topics, settings: GroupSettings
) -> ConsumerGroupDescribeReply:
    """Return the reply to ConsumerGroupDescribe."""
    if not state.exists:
        return ConsumerGroupDescribeReply(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {state.group_id} not found.",
            group_id=state.group_id,
            state=state.state.value,
        )
    members = [state.members[member_id] for member_id in sorted(state.members)]
    return ConsumerGroupDescribeReply(
        error_code=ErrorCode.NONE,
        group_id=state.group_id,
        state=state.state.value,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=preferred_assignor(members, settings),
        members=tuple(_member(state, member, topics) for member in members),
    )


def _member(state: ConsumerGroupState, member: ConsumerMember, topics: Topics) -> DescribedConsumer:
    about = member.about
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=about.instance_id,
        rack_id=about.rack_id,
        member_epoch=member.member_epoch,
        client_id=about.client_id,
        client_host=about.client_host,
        subscribed_topic_names=about.subscribed_topic_names,
        subscribed_topic_regex=about.subscribed_topic_regex or None,
        assignment=_named(member.assigned, topics),
        target_assignment=_named(state.target_of(member.member_id), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(assignment: Assignment, topics: Topics) -> tuple[TopicPartitions, ...]:
    """Return an assignment by topic name, in order, without deleted topics, which have no name."""
    named = [
        TopicPartitions(name, topic_id, tuple(sorted(partitions)))
        for topic_id, partitions in assignment.items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    return tuple(sorted(named))
