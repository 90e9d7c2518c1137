"""Transactions: by coordinator, open in partitions, hanging; and what aborts them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import Field
from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.first_records import first_timestamps
from tidemark.client.admin.group_types import TransactionDescription
from tidemark.client.admin.types import ProducerState
from tidemark.client.errors import ClientError
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.topics import TopicPartition
from tidemark.plans.hanging_transactions import OpenTransaction, hanging, suspects

from controller.admin import topics
from controller.admin.broker_calls import by_leader
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, not_found
from controller.admin.models import ItemProblem, Model, PartitionName

HANGING_MS: Final = 900_000
"""Longest time for which a producer may ask for a transaction (transaction.max.timeout.ms)."""
_RECORDS_WAIT_MS: Final = 1_000


class TransactionView(Model):
    """One transactional id of a listing."""

    transactional_id: str = Field(examples=["payments-1"])
    producer_id: int = Field(examples=[1000])
    state: str = Field(description="Kafka's name of the state", examples=["Ongoing"])


class TransactionDetail(TransactionView):
    """A transactional id with its open transaction."""

    producer_epoch: int = Field(examples=[3])
    timeout_ms: int = Field(examples=[60_000])
    started_ms: int | None = Field(description="null without an open one", examples=[None])
    open_ms: int | None = Field(examples=[None])
    partitions: list[PartitionName]


class ProducerView(PartitionName):
    """State of one idempotent producer at a partition's leader."""

    producer_id: int = Field(examples=[1000])
    producer_epoch: int = Field(examples=[3])
    last_sequence: int = Field(examples=[41])
    last_timestamp_ms: int = Field(examples=[1_790_000_000_000])
    transaction_start_offset: int | None = Field(examples=[None])


class OpenView(PartitionName):
    """A transaction that is open in a partition."""

    start_offset: int = Field(examples=[120])
    producer_id: int = Field(examples=[1000])
    producer_epoch: int = Field(examples=[3])
    transactional_id: str | None = Field(
        description="null if no coordinator has it, or the caller may not describe it"
    )
    id_withheld: bool = Field(
        description="true if a coordinator has it, and the caller may not describe its id: id,"
        " state and open_ms are null then",
        examples=[False],
    )
    state: str | None = Field(examples=["Ongoing"])
    open_ms: int | None = Field(description="by the coordinator", examples=[1500])
    idle_ms: int = Field(description="time since the producer's last write", examples=[900])
    holds_stable_offset: bool = Field(
        description="true if it is the first one open in the partition", examples=[True]
    )
    held_ms: int | None = Field(
        description="time since the first record of it in the partition", examples=[1500]
    )
    is_hanging: bool = Field(
        description="true if no coordinator will end it: it holds the last stable offset forever",
        examples=[False],
    )


async def list_transactions(ctx: AdminContext) -> list[TransactionView]:
    """Return all transactional ids, by name. Raises AdminError."""
    async with ctx.brokers.client() as admin:
        listed = await admin.list_transactions()
    ids = {one.transactional_id for one in listed}
    seen = set(ctx.visible(ids, transactional_id_resource))
    return [
        TransactionView(
            transactional_id=one.transactional_id, producer_id=one.producer_id, state=one.state
        )
        for one in listed
        if one.transactional_id in seen
    ]


async def get_transaction(ctx: AdminContext, transactional_id: str) -> TransactionDetail:
    """Return one transactional id. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, transactional_id_resource(transactional_id))
    async with ctx.brokers.client() as admin:
        one = (await admin.describe_transactions([transactional_id]))[transactional_id]
    started = one.started_ms if one.started_ms >= 0 else None
    now_ms = ctx.shared.clock.wall_ms()
    seen = topics.seen(ctx, [at.topic for at in one.partitions])
    return TransactionDetail(
        transactional_id=transactional_id,
        producer_id=one.producer_id,
        state=one.state,
        producer_epoch=one.producer_epoch,
        timeout_ms=one.timeout_ms,
        started_ms=started,
        open_ms=None if started is None else max(0, now_ms - started),
        partitions=[
            PartitionName(topic_name=at.topic, partition_id=at.partition)
            for at in one.partitions
            if at.topic in seen
        ],
    )


async def producers(
    ctx: AdminContext, partitions: Iterable[tuple[str, int]]
) -> tuple[list[ProducerView], list[ItemProblem]]:
    """Return the idempotent producers of partitions, and the partitions without an answer."""
    partitions = list(partitions)
    for topic in {name for name, _ in partitions}:
        ctx.require(Operation.READ, topic_resource(topic))
    states, problems = await _states(ctx, partitions)
    rows = [
        ProducerView(
            topic_name=at.topic,
            partition_id=at.partition,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp_ms=one.last_timestamp_ms,
            transaction_start_offset=(
                one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None
            ),
        )
        for at, found in sorted(states.items())
        for one in found
    ]
    return rows, problems


async def open_transactions(
    ctx: AdminContext, topic: str | None = None, *, hanging_ms: int = HANGING_MS
) -> tuple[list[OpenView], list[ItemProblem]]:
    """Return the transactions open in partitions, those that hold last stable offsets for longest
    first. One that is open for longer than ``hanging_ms`` and that no coordinator will end hangs.
    """
    image = ctx.image
    if topic is None:
        ctx.require(Operation.DESCRIBE)
    names = sorted(image.topics) if topic is None else [ctx.topic(topic).name]
    parts = [(name, one.partition) for name in names for one in image.topics[name].partitions]
    states, problems = await _states(ctx, parts)
    open_now = {at: _open(found) for at, found in states.items() if _open(found)}
    if not open_now:
        return [], problems
    now_ms = ctx.shared.clock.wall_ms()
    async with ctx.brokers.client() as admin:
        ids = {one.producer_id for found in open_now.values() for one in found}
        known = await _known(admin, ids)
    late = suspects(open_now, now_ms=now_ms, timeout_ms_max=hanging_ms)
    hung = set(hanging(late, known))
    since = await _since(ctx, {at: found[0] for at, found in open_now.items()})
    owned = _Owners(known, _seen_ids(ctx, known.values()))
    rows = [
        _open_row(OpenTransaction(at, one), owned, hung, place == 0, since.get(at), now_ms)
        for at, found in open_now.items()
        for place, one in enumerate(found)
    ]
    rows.sort(key=lambda row: (not row.is_hanging, -(row.held_ms or row.idle_ms)))
    return rows, problems


def _open(found: Sequence[ProducerState]) -> list[ProducerState]:
    open_now = [one for one in found if one.current_txn_start_offset >= 0]
    return sorted(open_now, key=lambda one: one.current_txn_start_offset)


class _Owners(NamedTuple):
    """Transactions by producer id, and the ids that the caller may describe."""

    known: Mapping[int, TransactionDescription]
    seen: frozenset[str]


def _seen_ids(ctx: AdminContext, found: Iterable[TransactionDescription]) -> frozenset[str]:
    return frozenset(
        ctx.visible({one.transactional_id for one in found}, transactional_id_resource)
    )


def _open_row(
    found: OpenTransaction,
    owners: _Owners,
    hung: set[OpenTransaction],
    holds: bool,  # noqa: FBT001 - a field of the row
    since_ms: int | None,
    now_ms: int,
) -> OpenView:
    at, producer = found
    owner = owners.known.get(producer.producer_id)
    withheld = owner is not None and owner.transactional_id not in owners.seen
    if withheld:
        owner = None
    started = -1 if owner is None else owner.started_ms
    return OpenView(
        topic_name=at.topic,
        partition_id=at.partition,
        start_offset=producer.current_txn_start_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional_id=None if owner is None else owner.transactional_id,
        id_withheld=withheld,
        state=None if owner is None else owner.state,
        open_ms=None if started < 0 else max(0, now_ms - started),
        idle_ms=max(0, now_ms - producer.last_timestamp_ms),
        holds_stable_offset=holds,
        held_ms=None if since_ms is None or not holds else max(0, now_ms - since_ms),
        is_hanging=found in hung,
    )


async def _states(
    ctx: AdminContext, partitions: Iterable[tuple[str, int]]
) -> tuple[dict[TopicPartition, list[ProducerState]], list[ItemProblem]]:
    """Return the producers of each partition from its leader, and what is missing."""
    wanted = by_leader(ctx.image, partitions)
    leaderless = wanted.pop(-1, [])

    async def at_leader(leader: int) -> dict[TopicPartition, list[ProducerState]]:
        group = [TopicPartition(*one) for one in wanted[leader]]
        fields = admin_requests.describe_producers(group)
        answer = await ctx.brokers.ask(leader, ApiKey.DESCRIBE_PRODUCERS, fields)
        return {
            TopicPartition(topic.name, each.partition_index): admin_requests.read_producers(each)
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }

    found: dict[TopicPartition, list[ProducerState]] = {}
    problems = [
        ItemProblem(item=f"{name}-{number}", error_code=50003, message="it has no leader")
        for name, number in leaderless
    ]
    for leader, answer in (await ctx.each(wanted, at_leader)).items():
        if isinstance(answer, AdminError):
            problems.append(
                ItemProblem(
                    item=f"broker {leader}", error_code=answer.error_code, message=answer.message
                )
            )
        else:
            found |= answer
    return found, problems


async def _known(admin: Admin, producer_ids: Iterable[int]) -> Mapping[int, TransactionDescription]:
    """Return the coordinators' descriptions of these producers, by producer id."""
    wanted = sorted(producer_ids)
    owners = {
        each.producer_id: each.transactional_id
        for each in await admin.list_transactions(producer_ids=wanted)
    }
    # A listing contains only producers of Kafka's API. Writers of handles and batches are requested
    # one by one.
    for producer_id in set(wanted) - owners.keys():
        for each in await admin.list_transactions(producer_ids=[producer_id]):
            owners[producer_id] = each.transactional_id
    described = await admin.describe_transactions(set(owners.values()))
    return {producer_id: described[name] for producer_id, name in owners.items()}


async def _since(
    ctx: AdminContext, first: Mapping[TopicPartition, ProducerState]
) -> dict[TopicPartition, int]:
    starts = {at: one.current_txn_start_offset for at, one in first.items()}
    try:
        return await first_timestamps(
            ",".join(ctx.brokers.bootstrap()),
            starts,
            isolation="read_uncommitted",
            wait_ms=_RECORDS_WAIT_MS,
            settings=ctx.brokers.kafka_security,
        )
    except ClientError:
        return {}


async def abort(ctx: AdminContext, transactional_id: str) -> None:
    """Abort the open transaction of an id at its coordinator; its producer is fenced. Raises
    AdminError.
    """
    ctx.require(Operation.WRITE, transactional_id_resource(transactional_id))
    async with ctx.brokers.client() as admin:
        await admin.describe_transactions([transactional_id])
        await admin.fence_producers([transactional_id])


async def check_abort(ctx: AdminContext, transactional_id: str) -> None:
    """Check that the caller may abort the transaction of an id, which exists. Raises AdminError."""
    ctx.require(Operation.WRITE, transactional_id_resource(transactional_id))
    await get_transaction(ctx, transactional_id)


async def abort_at(ctx: AdminContext, topic: str, partition: int, start_offset: int) -> None:
    """Write an abort marker for a hanging transaction to its partition, without a coordinator's
    decision. Raises AdminError.
    """
    ctx.require(Operation.CLUSTER_ACTION, CLUSTER)
    at = TopicPartition(topic, partition)
    async with ctx.brokers.client() as admin:
        found = (await admin.open_transactions([at])).get(at, [])
        for producer in found:
            if producer.current_txn_start_offset == start_offset:
                await admin.abort_transaction(at, producer)
                return
    raise not_found(f"no transaction open in {at} begins at offset {start_offset}")
