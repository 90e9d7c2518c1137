"""Consumer groups in the admin client."""

from collections.abc import Iterable
from typing import Any, Final

from tidemark.client.admin import group_answers as answers
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.admin.group_types import GroupDescription, GroupListing
from tidemark.client.consumer.group_types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetsInput,
    as_offsets,
    by_topic,
)
from tidemark.client.consumer.offset_storage import commit_fields
from tidemark.client.errors import (
    ClientError,
    CommitFailedError,
    GroupNotEmptyError,
    GroupNotFoundError,
    error_for,
)
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

_BY_NAME_MAX: Final = 9
_NOT_OF_THIS_KIND: Final = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,  # the empty one: consumers without a group's name commit by it
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class GroupAdmin(AdminCalls):
    """Methods of Admin for consumer groups and their offsets."""

    async def list_groups(
        self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return all groups, or those in these states and of these kinds, sorted by name."""
        fields = {"states_filter": list(states), "types_filter": list(kinds)}
        listed: dict[str, GroupListing] = {}
        for broker_id, answer in (await self._ask_every(ApiKey.LIST_GROUPS, fields)).items():
            if answer.error_code:
                where = self._transport().where(broker_id)
                raise error_for(answer.error_code, "listing groups failed", where=where)
            for each in answer.groups:
                listed[each.group_id] = GroupListing(
                    each.group_id,
                    each.group_type or "",
                    each.protocol_type,
                    each.group_state or "",
                    broker_id,
                )
        return [listed[name] for name in sorted(listed)]

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return state, members and assignments of groups. Raises GroupNotFoundError."""
        return {group_id: await self._describe_group(group_id) for group_id in group_ids}

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets (None: of all partitions).

        With ``require_stable`` it waits until no transaction has offsets of the group pending; a
        transaction that is committed may not have reached the group yet.
        """
        wanted = None if partitions is None else by_topic(TopicPartition(*p) for p in partitions)
        topics = (
            None
            if wanted is None
            else [{"name": name, "partition_indexes": each} for name, each in wanted.items()]
        )
        doing = f"fetching offsets of group {group_id!r}"

        def problem_of(answer: Struct) -> ClientError | None:
            group = _of_group(answer)
            found = answers.problem(group.error_code, doing)
            return found or answers.partition_problem(group.topics, doing)

        answer = await self._ask_coordinator(
            group_id,
            ApiKey.OFFSET_FETCH,
            {
                "groups": [{"group_id": group_id, "topics": topics}],
                "group_id": group_id,
                "topics": topics,
                "require_stable": require_stable,
            },
            problem_of,
            version_max=_BY_NAME_MAX,
        )
        return answers.committed_offsets(_of_group(answer).topics)

    async def alter_group_offsets(self, group_id: str, offsets: OffsetsInput) -> None:
        """Set the offsets of a group without members. Raises GroupNotEmptyError."""
        doing = f"moving offsets of group {group_id!r}"
        fields = commit_fields(GroupMetadata(group_id), as_offsets(offsets))
        try:
            await self._ask_coordinator(
                group_id,
                ApiKey.OFFSET_COMMIT,
                fields,
                lambda answer: answers.partition_problem(answer.topics, doing),
                version_max=_BY_NAME_MAX,
            )
        except CommitFailedError as refused:
            raise GroupNotEmptyError(
                refused.code, f"group {group_id!r} has members, which alone may move its offsets"
            ) from None

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups and their offsets. Raises GroupNotEmptyError, GroupNotFoundError."""
        for group_id in group_ids:
            doing = f"deleting group {group_id!r}"

            def problem_of(answer: Struct, doing: str = doing) -> ClientError | None:
                return answers.problem(answer.results[0].error_code, doing)

            fields = {"groups_names": [group_id]}
            await self._ask_coordinator(group_id, ApiKey.DELETE_GROUPS, fields, problem_of)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Delete offsets of partitions to which no member subscribes. Raises GroupNotEmptyError."""
        doing = f"deleting offsets of group {group_id!r}"
        wanted = by_topic(TopicPartition(*each) for each in partitions)
        fields = {
            "group_id": group_id,
            "topics": [
                {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
                for name, numbers in wanted.items()
            ],
        }

        def problem_of(answer: Struct) -> ClientError | None:
            found = answers.problem(answer.error_code, doing)
            return found or answers.partition_problem(answer.topics, doing)

        await self._ask_coordinator(group_id, ApiKey.OFFSET_DELETE, fields, problem_of)

    # -- internals

    async def _describe_group(self, group_id: str) -> GroupDescription:
        """Describe by the API of KIP-848, which refuses classic groups, then by the older one."""
        doing = f"describing group {group_id!r}"

        def problem_of(answer: Struct) -> ClientError | None:
            group = answer.groups[0]
            if group.error_code in _NOT_OF_THIS_KIND:
                return None
            return answers.problem(group.error_code, doing, group.error_message)

        answer = await self._ask_coordinator(
            group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group_id]}, problem_of
        )
        if not answer.groups[0].error_code:
            return answers.consumer_group(answer.groups[0])
        answer = await self._ask_coordinator(
            group_id, ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]}, problem_of
        )
        described = answers.classic_group(answer.groups[0])
        if described is None:
            raise GroupNotFoundError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}"
            )
        return described


def _of_group(answer: Struct) -> Any:
    return answer.groups[0] if answer.groups else answer
