"""Targets of the members of a KIP-848 group: what an assignor is given, and what is logged of its
result.
"""

from collections.abc import Mapping

from tidemark.codec.group_records_consumer import ConsumerRecord
from tidemark.model.assignment import Assignment
from tidemark.model.ids import TopicId

from broker.core.groups.consumer.admission import Admitted
from broker.core.groups.consumer.assignors import AssignorMember
from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.consumer.state import ConsumerGroupState, target_record
from broker.core.groups.subscriptions.resolver import Subscription


def target_before(state: ConsumerGroupState, admitted: Admitted) -> Assignment:
    """Return the target until now of the member that sent the request, or of its predecessor."""
    holder = admitted.replaces or admitted.member
    return state.target_of(holder.member_id)


def candidates_for(
    state: ConsumerGroupState,
    members: Mapping[str, ConsumerMember],
    admitted: Admitted,
    topic_ids: Mapping[Subscription, frozenset[TopicId]],
) -> list[AssignorMember]:
    """Return all members as an assignor sees them; ``topic_ids`` are those of each subscription."""
    return [
        AssignorMember(
            member.member_id,
            member.about.instance_id,
            topic_ids[member.subscription],
            target_before(state, admitted)
            if member.member_id == admitted.member.member_id
            else state.target_of(member.member_id),
        )
        for member in members.values()
    ]


def changed_targets(
    state: ConsumerGroupState, targets: Mapping[str, Assignment], admitted: Admitted
) -> list[ConsumerRecord]:
    """Return records for the members whose target changed."""
    records: list[ConsumerRecord] = []
    for member_id in sorted(targets):
        is_asking = member_id == admitted.member.member_id
        before = target_before(state, admitted) if is_asking else state.target_of(member_id)
        is_new = is_asking and member_id not in state.members
        if targets[member_id] != before or (is_new and admitted.replaces is None):
            records.append(target_record(state.group_id, member_id, targets[member_id]))
    return records
