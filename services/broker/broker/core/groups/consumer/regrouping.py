"""Regrouping: the rise of a KIP-848 group's epoch after any change of its members' subscriptions,
or of the topics that they mean.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidemark.codec.group_records_consumer import (
    ConsumerGroupPartitionMetadataRecord,
    ConsumerRecord,
)
from tidemark.protocol.shard import Moment

from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.consumer.state import ConsumerGroupState, epoch_record, matches_records
from broker.core.groups.requests import GroupSettings, Topics
from broker.core.groups.subscriptions.patterns import GroupPatterns, MayDescribe
from broker.core.groups.subscriptions.resolver import Matches, Subscription, subscribed


class Context(NamedTuple):
    """Inputs of a decision besides the group and the request."""

    now: Moment
    topics: Topics
    settings: GroupSettings
    may_describe: MayDescribe | None = None
    """Permissions of the sender of a KIP-848 heartbeat. Other requests do not match patterns."""


class Regrouped(NamedTuple):
    """The group once the records are replayed."""

    epoch: int
    records: list[ConsumerRecord]
    matches: Matches


class Regrouping:
    """Compares subscriptions with the topics. Its memory of what it has compared may be lost."""

    def __init__(self, state: ConsumerGroupState) -> None:
        self._state = state
        self._patterns = GroupPatterns()
        self._looked_at: int | None = None
        """Position of the metadata when subscribed topics were last compared with it."""

    def look_again(self) -> None:
        """Compare at the next request, since members have left."""
        self._looked_at = None

    def regroup(
        self, members: Mapping[str, ConsumerMember], context: Context, *, resubscribed: bool
    ) -> Regrouped:
        """Return the group's epoch with these members, and the records of what has changed."""
        state, topics = self._state, context.topics
        if not resubscribed and not self._is_due(context):
            return Regrouped(state.group_epoch, [], state.matches)
        subscriptions = {member.subscription for member in members.values()}
        matches = self._match(subscriptions, context)
        metadata = subscribed(subscriptions, matches, topics)
        self._looked_at = topics.position
        epoch, records = state.group_epoch, list[ConsumerRecord]()
        is_matched_otherwise = any(state.matches.get(one) != matches[one] for one in matches)
        is_other = metadata != state.topics
        if resubscribed or is_matched_otherwise or is_other or epoch == 0:
            epoch += 1
            records.append(epoch_record(state.group_id, epoch))
        if is_other:
            records.append(ConsumerGroupPartitionMetadataRecord(state.group_id, metadata))
        records += matches_records(state, matches, topics.position, context.now.wall)
        return Regrouped(epoch, records, matches)

    def _is_due(self, context: Context) -> bool:
        if self._looked_at != context.topics.position:
            return True
        return context.may_describe is not None and self._patterns.are_due(
            context.topics, context.now.instant
        )

    def _match(self, subscriptions: Collection[Subscription], context: Context) -> Matches:
        """Return the topics of each pattern."""
        if context.may_describe is None:
            return self._state.matches
        return self._patterns.match(
            {one.regex for one in subscriptions if one.regex},
            self._state.matches,
            context.topics,
            context.may_describe,
            context.now.instant,
            context.settings.group_consumer_regex_refresh_interval_ms,
        )
