"""Calls of ``tidemark txn``."""

from collections.abc import Iterable, Mapping, Sequence

from tidemark.cli.admin_client import open_admin
from tidemark.cli.failure import CommandError
from tidemark.cli.security import security, security_over_grpc
from tidemark.cli.txn.rows import Row, holder_row, open_row
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.first_records import first_timestamps
from tidemark.client.admin.group_types import TransactionDescription
from tidemark.client.admin.types import ProducerState
from tidemark.model.topics import TopicPartition
from tidemark.plans.hanging_transactions import OpenTransaction, hanging, suspects
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode


async def list_all(
    bootstrap: str, *, states: Iterable[str], pattern: str | None, duration_ms_min: int
) -> list[Row]:
    """Return a row for each transactional id."""
    async with open_admin(bootstrap) as admin:
        try:
            listed = await admin.list_transactions(
                states=states, pattern=pattern, duration_ms_min=duration_ms_min
            )
        except ValueError as problem:
            raise CommandError(str(problem), code=ExitCode.USAGE) from None
    return [
        {"transactional_id": each[0], "producer_id": each[1], "state": each[2]} for each in listed
    ]


async def list_hanging(bootstrap: str, topics: Sequence[str], *, timeout_ms_max: int) -> list[Row]:
    """Return a row for each open transaction that neither producer nor coordinator will end."""
    async with open_admin(bootstrap) as admin:
        now_ms = Clock().wall_ms()
        open_now = await admin.open_transactions(await _partitions(admin, topics))
        found = suspects(open_now, now_ms=now_ms, timeout_ms_max=timeout_ms_max)
        known = await _known(admin, {each.producer.producer_id for each in found})
    return [
        open_row(each, known.get(each.producer.producer_id), now_ms=now_ms)
        for each in hanging(found, known)
    ]


async def holders(bootstrap: str, topics: Sequence[str]) -> list[Row]:
    """Return the transactions that hold back last stable offsets, longest first."""
    async with open_admin(bootstrap) as admin:
        open_now = await admin.open_transactions(await _partitions(admin, topics))
        first = {part: OpenTransaction(part, each[0]) for part, each in open_now.items()}
        known = await _known(admin, {each.producer.producer_id for each in first.values()})
    starts = {part: each.producer.current_txn_start_offset for part, each in first.items()}
    since = await first_timestamps(
        bootstrap, starts, isolation="read_uncommitted", settings=security(bootstrap)
    )
    now_ms = Clock().wall_ms()
    rows = [
        holder_row(
            each,
            known.get(each.producer.producer_id),
            held_since_ms=since.get(partition),
            now_ms=now_ms,
        )
        for partition, each in first.items()
    ]
    return sorted(rows, key=lambda row: -(row["held_ms"] or 0))


async def describe(bootstrap: str, transactional_ids: Sequence[str]) -> list[Row]:
    """Return a row for each transactional id, with its partitions. Raises
    TransactionalIdNotFoundError.
    """
    async with open_admin(bootstrap) as admin:
        return await _describe(admin, transactional_ids)


async def describe_with_sinks(bootstrap: str, transactional_ids: Sequence[str]) -> list[Row]:
    """Do as ``describe``, with the batches of ids that are sinks. ``bootstrap``: gRPC addresses."""
    from tidemark.cli.txn import sinks  # loads gRPC

    given = {"transport": "grpc", **security_over_grpc(bootstrap)}
    async with Admin(bootstrap, **given) as admin:
        rows = await _describe(admin, transactional_ids)
    known = await sinks.describe(bootstrap, transactional_ids)
    return [{**row, **known.get(str(row["transactional_id"]), {})} for row in rows]


async def _describe(admin: Admin, transactional_ids: Sequence[str]) -> list[Row]:
    found = await admin.describe_transactions(transactional_ids)
    now_ms = Clock().wall_ms()
    return [_described(each, now_ms) for each in found.values()]


def _described(each: TransactionDescription, now_ms: int) -> Row:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "started_ms": each.started_ms if each.started_ms >= 0 else None,
        "open_ms": max(0, now_ms - each.started_ms) if each.started_ms >= 0 else None,
        "partitions": [str(partition) for partition in each.partitions],
    }


async def abort_by_id(bootstrap: str, transactional_id: str) -> list[Row]:
    """Abort the open transaction at its coordinator, and fence the producer."""
    async with open_admin(bootstrap) as admin:
        await admin.describe_transactions([transactional_id])
        await admin.fence_producers([transactional_id])
    return [{"transactional_id": transactional_id, "outcome": "aborted, producer fenced"}]


async def abort_at(bootstrap: str, partition: TopicPartition, start_offset: int) -> list[Row]:
    """Write an abort marker to one partition, for the transaction that begins at an offset."""
    async with open_admin(bootstrap) as admin:
        open_here = (await admin.open_transactions([partition])).get(partition, [])
        producer = _at_offset(partition, open_here, start_offset)
        await admin.abort_transaction(partition, producer)
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "start_offset": start_offset,
            "producer_id": producer.producer_id,
            "outcome": "aborted",
        }
    ]


def _at_offset(
    partition: TopicPartition, open_here: Sequence[ProducerState], start_offset: int
) -> ProducerState:
    for producer in open_here:
        if producer.current_txn_start_offset == start_offset:
            return producer
    starts = ", ".join(str(each.current_txn_start_offset) for each in open_here)
    raise CommandError(
        f"no transaction open in {partition} begins at offset {start_offset}",
        hint=f"open ones begin at {starts}" if starts else "no transaction is open there",
    )


async def _partitions(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    described = await admin.describe_topics(topics or None)
    return [
        TopicPartition(name, each.partition)
        for name, topic in sorted(described.items())
        for each in topic.partitions
        if each.leader >= 0
    ]


async def _known(admin: Admin, producer_ids: Iterable[int]) -> Mapping[int, TransactionDescription]:
    """Return the coordinators' descriptions of these producers, by producer id."""
    wanted = sorted(producer_ids)
    if not wanted:
        return {}
    owners = {
        each.producer_id: each.transactional_id
        for each in await admin.list_transactions(producer_ids=wanted)
    }
    if owners:
        # A listing contains only producers of Kafka's API. Writers of handles and batches, whose
        # transactions may last as long as they are kept alive, are requested one by one.
        for producer_id in set(wanted) - owners.keys():
            for each in await admin.list_transactions(producer_ids=[producer_id]):
                owners[producer_id] = each.transactional_id
    described = await admin.describe_transactions(set(owners.values()))
    return {producer_id: described[name] for producer_id, name in owners.items()}
