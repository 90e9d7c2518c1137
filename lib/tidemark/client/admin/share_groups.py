"""Share groups in the admin client."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidemark.client.admin import group_answers as answers
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.admin.share_types import (
    ShareGroupDescription,
    ShareGroupOffset,
    ShareMemberDescription,
)
from tidemark.client.consumer.group_types import by_topic
from tidemark.client.errors import ClientError
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition


class ShareGroupAdmin(AdminCalls):
    """Methods of Admin for share groups. ``list_groups(kinds=["share"])`` lists them, and
    ``delete_groups`` deletes them.
    """

    async def describe_share_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ShareGroupDescription]:
        """Return state, members and assignments of share groups. Raises GroupNotFoundError."""
        return {group_id: await self._describe_share_group(group_id) for group_id in group_ids}

    async def list_share_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """Return a share group's start offsets (None: of all partitions) with their lag.

        Raises GroupNotFoundError.
        """
        topics = None
        if partitions is not None:
            wanted = by_topic(TopicPartition(*each) for each in partitions)
            topics = [{"topic_name": name, "partitions": each} for name, each in wanted.items()]
        doing = f"describing offsets of share group {group_id!r}"

        def problem_of(answer: Struct) -> ClientError | None:
            group = answer.groups[0]
            found = answers.problem(group.error_code, doing, group.error_message)
            return found or _again(_partition_problem(group.topics, doing))

        answer = await self._ask_coordinator(
            group_id,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            {"groups": [{"group_id": group_id, "topics": topics}]},
            problem_of,
        )
        _raise(_partition_problem(answer.groups[0].topics, doing))
        return {
            TopicPartition(topic.topic_name, each.partition_index): ShareGroupOffset(
                _known(each.start_offset),
                each.leader_epoch,
                _known(each.lag),
                each.error_message or None,
            )
            for topic in answer.groups[0].topics
            for each in topic.partitions
        }

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Deliver partitions of a share group without members from these offsets on. All records
        from there on are delivered again, acknowledged ones too. Raises GroupNotEmptyError,
        GroupNotFoundError.
        """
        doing = f"moving offsets of share group {group_id!r}"
        topics: dict[str, list[dict[str, int]]] = {}
        for at, offset in offsets.items():
            topic, partition = TopicPartition(*at)
            row = {"partition_index": partition, "start_offset": offset}
            topics.setdefault(topic, []).append(row)
        fields: dict[str, Any] = {
            "group_id": group_id,
            "topics": [{"topic_name": name, "partitions": rows} for name, rows in topics.items()],
        }
        await self._change(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            fields,
            doing,
            lambda answer: _partition_problem(answer.responses, doing),
        )

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Forget whole topics of a share group without members: it begins them again by
        share.auto.offset.reset. Raises GroupNotEmptyError, GroupNotFoundError.
        """
        doing = f"deleting offsets of share group {group_id!r}"
        fields: dict[str, Any] = {
            "group_id": group_id,
            "topics": [{"topic_name": name} for name in topics],
        }

        def problem_of(answer: Struct) -> ClientError | None:
            for topic in answer.responses:
                of_topic = f"{doing} in topic {topic.topic_name!r}"
                found = answers.problem(topic.error_code, of_topic, topic.error_message)
                if found is not None:
                    return found
            return None

        await self._change(ApiKey.DELETE_SHARE_GROUP_OFFSETS, fields, doing, problem_of)

    # -- internals

    async def _describe_share_group(self, group_id: str) -> ShareGroupDescription:
        doing = f"describing share group {group_id!r}"

        def problem_of(answer: Struct) -> ClientError | None:
            group = answer.groups[0]
            return answers.problem(group.error_code, doing, group.error_message)

        answer = await self._ask_coordinator(
            group_id, ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [group_id]}, problem_of
        )
        return _described(answer.groups[0])

    async def _change(
        self,
        api_key: ApiKey,
        fields: dict[str, Any],
        doing: str,
        problem_of_parts: Callable[[Struct], ClientError | None],
    ) -> None:
        def problem_of(answer: Struct) -> ClientError | None:
            found = answers.problem(answer.error_code, doing, answer.error_message)
            return found or _again(problem_of_parts(answer))

        _raise(
            problem_of_parts(
                await self._ask_coordinator(fields["group_id"], api_key, fields, problem_of)
            )
        )


def _described(group: Any) -> ShareGroupDescription:
    return ShareGroupDescription(
        group.group_id,
        group.group_state,
        group.assignor_name,
        tuple(
            ShareMemberDescription(
                each.member_id,
                each.client_id,
                each.client_host,
                each.rack_id,
                each.member_epoch,
                tuple(each.subscribed_topic_names),
                tuple(
                    TopicPartition(topic.topic_name, partition)
                    for topic in each.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            )
            for each in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _partition_problem(topics: Iterable[Any], doing: str) -> ClientError | None:
    """Return the first error of a partition; one that is not retriable takes precedence."""
    problems = [
        found
        for topic in topics
        for each in topic.partitions
        for found in [
            answers.problem(
                each.error_code,
                f"{doing} in {topic.topic_name}-{each.partition_index}",
                each.error_message,
            )
        ]
        if found is not None
    ]
    problems.sort(key=lambda each: each.retriable)
    return problems[0] if problems else None


def _again(problem: ClientError | None) -> ClientError | None:
    """Return the error of a part, unless it is a topic that does not exist: the answer is final."""
    missing = problem is not None and problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None if missing else problem


def _raise(problem: ClientError | None) -> None:
    if problem is not None:
        raise problem


def _known(number: int) -> int | None:
    return number if number >= 0 else None
