"""Dead letters (KIP-1191): share groups with a queue, the letters in it, and those that wait."""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field
from tidemark.client.errors import GroupNotFoundError
from tidemark.model.authorization import Operation, group_resource, topic_resource
from tidemark.model.errors import TidemarkError
from tidemark.model.share_group_configs import DEAD_LETTER_TOPIC
from tidemark.model.topics import TopicPartition

from controller.admin import messages, topics
from controller.admin.context import AdminContext
from controller.admin.errors import from_cluster, not_found
from controller.admin.messages import MessagesQuery
from controller.admin.models import ItemProblem, Model, PartitionName
from controller.admin.records import Search, StoredRecord
from controller.admin.share_groups import share_views

LETTERS_MAX: Final = 500
WAITING_PARTITIONS_MAX: Final = 200
"""Partitions of a group whose waiting letters are counted."""
_COUNTED_AT_ONCE: Final = 16
_ENABLE: Final = "errors.deadletterqueue.group.enable"
_COPY: Final = "errors.deadletterqueue.copy.record.enable"
_HEADER: Final = "__dlq.errors."

QueueState = Literal["ready", "missing", "not enabled"]


class DeadLetterQueue(Model):
    """A share group that names a queue. One topic may be the queue of several groups."""

    group_id: str = Field(examples=["mailers"])
    queue: str = Field(examples=["dlq.mailers"])
    state: QueueState = Field(
        description="missing: there is no such topic; not enabled: the topic does not allow it",
        examples=["ready"],
    )
    copies_record: bool = Field(
        description="true if letters have key, value and headers of the record", examples=[True]
    )


class Letter(Model):
    """One letter in a queue. Null: the header is missing or cannot be read."""

    partition_id: int = Field(description="partition of the queue", examples=[0])
    offset: int = Field(examples=[12])
    timestamp_ms: int = Field(description="time of the copy", examples=[1_790_000_000_000])
    source_topic: str | None = Field(examples=["orders"])
    source_partition: int | None = Field(examples=[3])
    source_offset: int | None = Field(examples=[90])
    delivery_count: int | None = Field(examples=[5])
    reason: str | None = Field(examples=["Offset rejected by client."])


class LetterList(Model):
    """Latest letters of one group, newest first."""

    letters: list[Letter]
    scanned: int = Field(description="records of the queue that were looked at", examples=[120])
    problems: list[ItemProblem] = Field(description="partitions of the queue that are missing")


class WaitingLetters(PartitionName):
    """Letters of one share-partition that are not in the queue yet."""

    waiting: int | None = Field(description="null, with the reason, if not known", examples=[3])
    problem: str | None = Field(
        description="reason for which they are not copied, or for which the count is missing",
        examples=["there is no topic dlq.mailers"],
    )


def queues(ctx: AdminContext) -> list[DeadLetterQueue]:
    """Return the groups with a queue, by id, from the metadata; of those groups and queues that the
    caller may describe.
    """
    image = ctx.image
    groups = ctx.visible(sorted(image.group_configs), group_resource)
    found = (_queue(ctx, group_id, image.group_configs[group_id]) for group_id in groups)
    return [one for one in found if one is not None]


def queue_of(ctx: AdminContext, group_id: str) -> DeadLetterQueue:
    """Return the queue of a group. Raises AdminError if there is none that the caller may
    describe.
    """
    found = find_queue(ctx, group_id)
    if found is None:
        raise not_found(
            f"group {group_id!r} has no dead-letter queue that {ctx.principal} may describe",
            field="group_id",
            remedy=f"set {DEAD_LETTER_TOPIC} of the group; the topic is shown with DESCRIBE on it",
        )
    return found


def find_queue(ctx: AdminContext, group_id: str) -> DeadLetterQueue | None:
    """Return the queue of a group; None if it has none that the caller may describe."""
    ctx.require(Operation.DESCRIBE, group_resource(group_id))
    return _queue(ctx, group_id, ctx.image.group_configs.get(group_id, {}))


def _queue(ctx: AdminContext, group_id: str, configs: Mapping[str, str]) -> DeadLetterQueue | None:
    """Return the queue that the configuration of a group names. Kafka shows that configuration with
    DESCRIBE_CONFIGS on the group, and a topic with DESCRIBE on it; the state is about the topic.
    """
    name = configs.get(DEAD_LETTER_TOPIC)
    if not name or not ctx.may(Operation.DESCRIBE, topic_resource(name)):
        return None
    topic = ctx.image.topics.get(name)
    state: QueueState = "ready"
    if topic is None:
        state = "missing"
    elif topic.configs.get(_ENABLE, "false") != "true":
        state = "not enabled"
    copies = configs.get(_COPY, "false") == "true"
    return DeadLetterQueue(group_id=group_id, queue=name, state=state, copies_record=copies)


async def letters(ctx: AdminContext, group_id: str, limit: int = 50) -> LetterList:
    """Return the latest letters of a group that readers of committed records find; none if the
    queue does not exist. Raises AdminError if the group has no queue.
    """
    queue = queue_of(ctx, group_id)
    if queue.state == "missing":
        return LetterList(letters=[], scanned=0, problems=[])
    ctx.require(Operation.READ, topic_resource(queue.queue))
    search = Search(f"{_HEADER}group={group_id}", "headers")
    query = MessagesQuery(limit=max(1, min(limit, LETTERS_MAX)), search=search)
    found = await messages.read(ctx, queue.queue, query)
    return LetterList(
        letters=[letter(one) for one in found.records if _text(one, "group") == group_id],
        scanned=found.scanned,
        problems=[
            ItemProblem(item=f"{queue.queue}-{number}", error_code=50003, message=reason)
            for number, reason in sorted(found.problems.items())
        ],
    )


def letter(record: StoredRecord) -> Letter:
    """Return a record of a queue as a letter."""
    return Letter(
        partition_id=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        source_topic=_text(record, "topic"),
        source_partition=_number(record, "partition"),
        source_offset=_number(record, "offset"),
        delivery_count=_number(record, "delivery.count"),
        reason=_text(record, "message"),
    )


def _text(record: StoredRecord, name: str) -> str | None:
    """Return the header of a letter; the last one counts, as copies have the record's own before
    it perhaps.
    """
    found = [value for key, value in record.headers if key == _HEADER + name]
    return None if not found or found[-1] is None else found[-1].decode(errors="replace")


def _number(record: StoredRecord, name: str) -> int | None:
    text = _text(record, name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


async def waiting(ctx: AdminContext, group_id: str) -> list[WaitingLetters]:
    """Return the partitions with letters that wait, and those whose count is not known, of topics
    that the caller may describe; none if the group has a configuration and has never had a member.
    Raises AdminError.
    """
    queue_of(ctx, group_id)
    async with ctx.brokers.client() as admin:
        try:
            offsets = await admin.list_share_group_offsets(group_id)
        except GroupNotFoundError:
            return []
    seen = topics.seen(ctx, [at.topic for at in offsets])
    chosen = sorted(at for at in offsets if at.topic in seen)[:WAITING_PARTITIONS_MAX]
    slots = asyncio.Semaphore(_COUNTED_AT_ONCE)
    async with share_views(ctx) as views:

        async def count(at: TopicPartition) -> WaitingLetters:
            async with slots:
                try:
                    lag = await views.lag(group_id, at)
                except TidemarkError as error:
                    return _waits(at, None, from_cluster(error).message)
            return _waits(at, lag.archiving, lag.dead_letter_problem)

        found = await asyncio.gather(*map(count, chosen))
    return [one for one in found if one.waiting != 0]


def _waits(at: TopicPartition, count: int | None, problem: str | None) -> WaitingLetters:
    return WaitingLetters(
        topic_name=at.topic, partition_id=at.partition, waiting=count, problem=problem
    )
