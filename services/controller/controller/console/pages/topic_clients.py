"""Readers and writers of a topic: groups with offsets in it, and idempotent producers."""

from typing import Final

from starlette.responses import Response

from controller.admin import groups, topics, transactions
from controller.admin.errors import AdminError
from controller.admin.groups import GroupDetail
from controller.admin.transactions import ProducerView
from controller.console.tables import Column, Table
from controller.console.visit import Visit

_GROUPS_MAX: Final = 200
"""Groups that are looked at for one page."""

PRODUCERS: Final[Table[ProducerView]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: row.partition_id, is_number=True),
        Column("producer", "Producer id", lambda row: row.producer_id, is_number=True),
        Column("epoch", "Epoch", lambda row: row.producer_epoch, is_number=True),
        Column("sequence", "Last sequence", lambda row: row.last_sequence, is_number=True),
        Column("time", "Last write (UTC)", lambda row: row.last_timestamp_ms),
        Column("txn", "Transaction", lambda row: row.transaction_start_offset),
    ),
    text_of=lambda row: f"{row.partition_id} {row.producer_id}",
    sort="-time",
    noun="producer",
)


async def show(visit: Visit, name: str) -> Response:
    """Show the page; who reads and writes comes as a part."""
    return visit.page("topic_clients.html", topic=await topics.get_topic(visit.admin, name))


async def figures(visit: Visit, name: str) -> Response:
    """Show groups and producers, as a part."""
    topic = visit.admin.topic(name)
    partitions = [(name, one.partition) for one in topic.partitions]
    writers, problems = await transactions.producers(visit.admin, partitions)
    listed, late = await groups.list_groups(visit.admin)
    asked = [one.group_id for one in listed if one.kind != groups.SHARE][:_GROUPS_MAX]
    answers = await visit.admin.each(asked, lambda one: groups.get_group(visit.admin, one))
    readers = [
        _reader(group, name)
        for group in answers.values()
        if not isinstance(group, AdminError)
        and any(row.topic_name == name for row in group.partitions)
    ]
    return visit.page(
        "parts/topic_clients.html",
        readers=readers,
        producers=visit.table(PRODUCERS, writers),
        problems=[*problems, *late],
        left_out=max(0, len(listed) - _GROUPS_MAX),
    )


def _reader(group: GroupDetail, name: str) -> tuple[str, str, int, int | None]:
    """Return group, state, number of members that read the topic, and lag in it."""
    rows = [row for row in group.partitions if row.topic_name == name]
    lags = [row.lag for row in rows if row.lag is not None]
    members = {row.member_id for row in rows if row.member_id is not None}
    return group.group_id, group.state, len(members), sum(lags) if lags else None
