"""DescribeShareGroupOffsets (90, KIP-932): start offsets of share groups, with their lag."""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.letter_problems import LetterProblems, Problems, shown_problem
from broker.shell.groups.share_groups import DescribedOffsets, Outcome, ShareTopic
from broker.shell.groups.share_lag import UNKNOWN_LAG, Lags, ShareLag
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.group_calls import NamedTopic, TopicChoice, may
from broker.shell.request_context import RequestContext

LAG_FROM: Final = 1
"""First version that shows lag (KIP-1226)."""
_NO_START: Final = -1


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ShareRelay,
    lag: ShareLag,
    letters: LetterProblems,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return one result for each group, each with an error of its own. The message of a partition
    without an error is the reason for which its dead letters are not copied.
    """
    handler = _Describing(facts, metadata, relay, lag, letters, context)
    return {"groups": [await handler.group(group) for group in request.groups]}


class _Describing:
    """One request."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        relay: ShareRelay,
        lag: ShareLag,
        letters: LetterProblems,
        context: RequestContext,
    ) -> None:
        self._facts = facts
        self._metadata = metadata
        self._relay = relay
        self._lag = lag
        self._letters = letters
        self._context = context
        self._topics = TopicChoice(facts, metadata, context, Operation.DESCRIBE)

    async def group(self, group: Struct) -> dict[str, object]:
        """Describe one group: the topics named, or all that the caller may see."""
        group_id = group.group_id
        if not may(self._facts, self._context, Operation.DESCRIBE, group_id):
            return _refused(group_id, Outcome(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if not group_id:
            return _refused(group_id, Outcome(ErrorCode.INVALID_GROUP_ID))
        if group.topics is None:
            described = await self._ask(group_id, None)
            return await self._answer(group_id, described, [])
        wanted, failed = self._chosen(group.topics)
        # Without a topic that exists the group is not looked up, as in Kafka.
        described = DescribedOffsets(Outcome(ErrorCode.NONE))
        if wanted:
            described = await self._ask(group_id, wanted)
        return await self._answer(group_id, described, failed)

    def _chosen(self, topics: list[Struct]) -> tuple[list[ShareTopic], list[dict[str, object]]]:
        """Return the topics to ask for, and the rows of those that are refused."""
        wanted, failed = [], []
        for topic in topics:
            found = self._topics.by_name(topic.topic_name)
            if isinstance(found, NamedTopic):
                partitions = tuple(dict.fromkeys(topic.partitions))
                wanted.append(ShareTopic(found.topic_id, found.topic, partitions))
            else:
                failed.append(_failed_topic(topic, found))
        return wanted, failed

    async def _ask(self, group_id: str, topics: list[ShareTopic] | None) -> DescribedOffsets:
        return await self._relay.describe_offsets(caller_of(self._context), group_id, topics)

    async def _answer(
        self, group_id: str, described: DescribedOffsets, failed: list[dict[str, object]]
    ) -> dict[str, object]:
        if described.outcome.error_code is not ErrorCode.NONE:
            return _refused(group_id, described.outcome)
        lags: Lags = {}
        if self._context.api_version >= LAG_FROM:
            lags = await self._lag.of(group_id, described.topics)
        problems = await self._letters.of(
            group_id,
            (
                TopicPartition(topic.topic, one.partition)
                for topic in described.topics
                for one in topic.offsets
            ),
        )
        shown = {key: self._shown(group_id, problem) for key, problem in problems.items()}
        return {
            "group_id": group_id,
            "topics": [*self._rows(described, lags, shown), *failed],
            "error_code": int(ErrorCode.NONE),
            "error_message": None,
        }

    def _shown(self, group_id: str, problem: str) -> str:
        authorizer, requester = self._facts.authorizer, self._context.requester
        return shown_problem(problem, group_id, self._metadata.image, authorizer, requester)

    def _rows(
        self, described: DescribedOffsets, lags: Lags, problems: Problems
    ) -> list[dict[str, object]]:
        sees = self._facts.authorizer.sees
        return [
            {
                "topic_name": topic.topic,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "start_offset": one.start_offset,
                        "leader_epoch": one.leader_epoch,
                        "lag": lags.get((topic.topic_id, one.partition), UNKNOWN_LAG),
                        "error_code": int(ErrorCode.NONE),
                        "error_message": problems.get((topic.topic_id, one.partition)),
                    }
                    for one in topic.offsets
                ],
            }
            for topic in described.topics
            if sees(self._context.requester, Operation.DESCRIBE, topic_resource(topic.topic))
        ]


def _refused(group_id: str, outcome: Outcome) -> dict[str, object]:
    return {
        "group_id": group_id,
        "topics": [],
        "error_code": int(outcome.error_code),
        "error_message": outcome.error_message,
    }


def _failed_topic(topic: Struct, code: ErrorCode) -> dict[str, object]:
    return {
        "topic_name": topic.topic_name,
        "topic_id": NO_TOPIC_ID,
        "partitions": [
            {
                "partition_index": partition,
                "start_offset": _NO_START,
                "leader_epoch": 0,
                "lag": UNKNOWN_LAG,
                "error_code": int(code),
                "error_message": code.name,
            }
            for partition in topic.partitions
        ],
    }
