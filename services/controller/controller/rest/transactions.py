"""Transactions and producers: states, holders of last stable offsets, and aborts."""

from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response
from pydantic import Field
from tidemark.model.authorization import Operation

from controller.admin import topics
from controller.admin import transactions as admin
from controller.admin.models import Input, ItemProblem
from controller.admin.paging import page
from controller.rest.changing import changed_or_checked, done, without_content
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    NAME_CHARS_MAX,
    PAGE_SIZE_DEFAULT,
    Collection,
    Ctx,
    Cursor,
    Here,
    Name,
    PageSize,
    Resource,
    cluster_router,
)

router = cluster_router("Transactions", {**RESPONSES, **CHANGES}, route_class=IdempotentRoute)

TransactionalId = Annotated[
    Name, Path(description="transactional id", examples=["payments-1"], max_length=NAME_CHARS_MAX)
]
DryRun = Annotated[bool, Query(description="check, and change nothing")]


class TransactionListed(admin.TransactionView, Resource):
    """Transactional id of a listing."""

    kind: Literal["KafkaTransaction"] = "KafkaTransaction"
    cluster_id: str


class OpenData(admin.OpenView, Resource):
    """Transaction that is open in a partition."""

    kind: Literal["KafkaOpenTransaction"] = "KafkaOpenTransaction"
    cluster_id: str


class TransactionDataList(Collection[TransactionListed]):
    """Page of transactional ids. With `open` or `hanging`, `open_transactions` has those that are
    open in partitions, holders of last stable offsets for longest first.
    """

    kind: Literal["KafkaTransactionList"] = "KafkaTransactionList"
    total: int = Field(examples=[1])
    open_transactions: list[OpenData] = Field(default=[])
    problems: list[ItemProblem] = Field(default=[])


class TransactionData(admin.TransactionDetail, Resource):
    """Transactional id with its open transaction."""

    kind: Literal["KafkaTransaction"] = "KafkaTransaction"
    cluster_id: str


class ProducerData(admin.ProducerView, Resource):
    """Idempotent producer at a partition's leader."""

    kind: Literal["KafkaProducer"] = "KafkaProducer"
    cluster_id: str


class ProducerDataList(Collection[ProducerData]):
    """Idempotent producers of a topic's partitions."""

    kind: Literal["KafkaProducerList"] = "KafkaProducerList"
    problems: list[ItemProblem] = Field(description="leaders that did not answer in time")


class AbortAt(Input):
    """Place of a hanging transaction, which no coordinator will end."""

    topic_name: str = Field(max_length=249, examples=["orders"])
    partition_id: int = Field(ge=0, lt=2**31, examples=[0])
    start_offset: int = Field(ge=0, lt=2**63, examples=[120])


@router.get("/transactions", operation_id="listTransactions")
async def list_transactions(  # a page and its filters
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    open_only: Annotated[  # noqa: FBT002
        bool, Query(alias="open", description="with those open in partitions")
    ] = False,
    hanging: Annotated[bool, Query(description="with those that no coordinator will end")] = False,  # noqa: FBT002
    hanging_ms: Annotated[
        int, Query(ge=0, lt=2**62, description="longest time of any transaction, in ms")
    ] = admin.HANGING_MS,
    topic: Annotated[
        str | None, Query(max_length=249, description="with open or hanging: of one topic")
    ] = None,
) -> TransactionDataList:
    """Return transactional ids by name, page by page; or the transactions open in partitions."""
    if open_only or hanging:
        rows, problems = await admin.open_transactions(ctx, topic, hanging_ms=hanging_ms)
        shown = [one for one in rows if one.is_hanging or not hanging]
        return TransactionDataList(
            metadata=here.listing(),
            data=[],
            total=len(shown),
            open_transactions=[
                OpenData(
                    **one.model_dump(),
                    metadata=here.about(
                        "transactions", topic=one.topic_name, partition=one.partition_id
                    ),
                    cluster_id=here.cluster_id,
                )
                for one in shown
            ],
            problems=problems,
        )
    listed = {one.transactional_id: one for one in await admin.list_transactions(ctx)}
    found = page(sorted(listed), cursor, page_size)
    data = [
        TransactionListed(
            **listed[name].model_dump(),
            metadata=here.about("transactions", name, transaction=name),
            cluster_id=here.cluster_id,
        )
        for name in found.keys
    ]
    return TransactionDataList(
        metadata=here.listing(found.cursor, request), data=data, total=found.total
    )


@router.get("/transactions/{transactional_id}", operation_id="getTransaction")
async def get_transaction(
    ctx: Ctx, here: Here, transactional_id: TransactionalId
) -> TransactionData:
    """Return one transactional id: state, age and partitions."""
    found = await admin.get_transaction(ctx, transactional_id)
    return TransactionData(
        **found.model_dump(),
        metadata=here.about("transactions", transactional_id, transaction=transactional_id),
        cluster_id=here.cluster_id,
    )


@without_content(router.post, "/transactions/{transactional_id}:abort", "abortTransaction")
async def abort(
    ctx: Ctx,
    transactional_id: TransactionalId,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> Response:
    """Abort the open transaction of an id at its coordinator; its producer is fenced."""
    return await changed_or_checked(
        lambda: admin.abort(ctx, transactional_id),
        lambda: admin.check_abort(ctx, transactional_id),
        dry_run=dry_run,
    )


@without_content(router.post, "/transactions:abort-hanging", "abortHangingTransaction")
async def abort_hanging(
    ctx: Ctx,
    at: AbortAt,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> Response:
    """Write an abort marker to one partition, for a transaction that no coordinator will end."""
    ctx.require(Operation.CLUSTER_ACTION)
    topics.require_partition(ctx, at.topic_name, at.partition_id)
    if not dry_run:
        await admin.abort_at(ctx, at.topic_name, at.partition_id, at.start_offset)
    return done()


@router.get("/producers", operation_id="listProducers")
async def list_producers(
    ctx: Ctx,
    here: Here,
    topic: Annotated[str, Query(max_length=249)],
    partition: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
) -> ProducerDataList:
    """Return the idempotent producers of a topic's partitions, from their leaders."""
    if partition is not None:
        topics.require_partition(ctx, topic, partition)
    numbers = range(len(ctx.topic(topic).partitions)) if partition is None else [partition]
    rows, problems = await admin.producers(ctx, [(topic, number) for number in numbers])
    data = [
        ProducerData(
            **one.model_dump(),
            metadata=here.about(
                "producers", topic=topic, partition=one.partition_id, producer=one.producer_id
            ),
            cluster_id=here.cluster_id,
        )
        for one in rows
    ]
    return ProducerDataList(metadata=here.listing(), data=data, problems=problems)
