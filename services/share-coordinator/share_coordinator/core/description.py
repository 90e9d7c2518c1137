"""Description and list of share groups, as in Kafka's ShareGroupDescribe and ListGroups."""

from collections.abc import Iterable

from tidemark.model.assignment import Assignment
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import Topics

from share_coordinator.core.group_state import ShareGroupState
from share_coordinator.core.member import ShareMember
from share_coordinator.core.requests import (
    DescribedMember,
    DescribeShareGroupReply,
    ListedShareGroup,
    ListShareGroupsReply,
    TopicPartitions,
)

DEAD = "Dead"


def describe(group: ShareGroupState, topics: Topics, assignor_name: str) -> DescribeShareGroupReply:
    """One group with all its members."""
    return DescribeShareGroupReply(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        state=group.title,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor_name,
        members=tuple(
            _member(group.members[member_id], topics) for member_id in sorted(group.members)
        ),
    )


def not_found(group_id: str) -> DescribeShareGroupReply:
    """A group that does not exist."""
    return DescribeShareGroupReply(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=not_found_message(group_id),
        group_id=group_id,
        state=DEAD,
    )


def not_found_message(group_id: str) -> str:
    """In Kafka's words."""
    return f"Share group {group_id} not found."


def listed(groups: Iterable[ShareGroupState], states: Iterable[str]) -> ListShareGroupsReply:
    """Groups in one of the states asked for."""
    wanted = {title.lower() for title in states}
    return ListShareGroupsReply(
        tuple(
            ListedShareGroup(group.group_id, group.title)
            for group in groups
            if group.exists and (not wanted or group.title.lower() in wanted)
        )
    )


def _member(member: ShareMember, topics: Topics) -> DescribedMember:
    about = member.about
    return DescribedMember(
        member_id=member.member_id,
        rack_id=about.rack_id,
        member_epoch=member.member_epoch,
        client_id=about.client_id,
        client_host=about.client_host,
        subscribed_topic_names=about.subscribed_topic_names,
        assignment=_named(member.assigned, topics),
    )


def _named(assignment: Assignment, topics: Topics) -> tuple[TopicPartitions, ...]:
    """Return an assignment with names. Topics that were deleted since are left out."""
    return tuple(
        TopicPartitions(topic_id, name, tuple(sorted(assignment[topic_id])))
        for topic_id in sorted(assignment)
        if (name := topics.name_of(topic_id)) is not None
    )
