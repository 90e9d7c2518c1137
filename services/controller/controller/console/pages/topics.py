"""Topics, and one topic: partitions, configuration, figures from the leaders."""

import asyncio
from typing import Any, Final

from starlette.responses import Response

from controller.admin import configs, topics
from controller.admin.topics import PartitionView, TopicView
from controller.console.pages.config_table import CONFIGS
from controller.console.tables import Column, Table
from controller.console.visit import Visit

_WORST_FIRST: Final = {"leaderless": 0, "under-min-isr": 1, "under-replicated": 2, "ok": 3}


def _trouble(row: TopicView) -> tuple[int, int]:
    return row.leaderless_partitions, row.under_replicated_partitions


TOPICS: Final[Table[TopicView]] = Table(
    columns=(
        Column("name", "Topic", lambda row: row.topic_name),
        Column("partitions", "Partitions", lambda row: row.partitions_count, is_number=True),
        Column("replicas", "Replicas", lambda row: row.replication_factor, is_number=True),
        Column("state", "State", _trouble),
        Column("records", "Records", is_number=True),
        Column("size", "Size", is_number=True),
    ),
    text_of=lambda row: row.topic_name,
    sort="name",
    is_ordered=True,
    noun="topic",
)
PARTITIONS: Final[Table[PartitionView]] = Table(
    columns=(
        Column("id", "Partition", lambda row: row.partition_id, is_number=True),
        Column("state", "State", lambda row: _WORST_FIRST[row.state]),
        Column("leader", "Leader", lambda row: row.leader_id, is_number=True),
        Column("replicas", "Replicas"),
        Column("start", "Start", is_number=True),
        Column("stable", "Last stable", is_number=True),
        Column("end", "End", is_number=True),
        Column("size", "Size", is_number=True),
    ),
    text_of=lambda row: f"{row.partition_id} {row.state} leader={row.leader_id}",
    sort="id",
    noun="partition",
)


async def show_all(visit: Visit) -> Response:
    """Show all topics."""
    with_internal = visit.query.get("internal") == "yes"
    image = visit.image
    names = topics.topic_names(visit.admin, internal=with_internal)
    views = topics.topic_views(image)
    shown = visit.table(TOPICS, [views[name] for name in names])
    hidden = sum(topics.is_internal(name) for name in image.topics) if not with_internal else 0
    figures = await _in_time(
        visit, topics.figures(visit.admin, [row.topic_name for row in shown.rows])
    )
    return visit.page(
        "topics.html", topics=shown, hidden=hidden, figures=figures, with_internal=with_internal
    )


async def show(visit: Visit, name: str) -> Response:
    """Show one topic with its partitions."""
    admin = visit.admin
    topic = await topics.get_topic(admin, name)
    partitions = visit.table(PARTITIONS, await topics.list_partitions(admin, name))
    keys = [(name, row.partition_id) for row in partitions.rows]
    offsets = await _in_time(visit, topics.offsets(admin, keys))
    everything = await _in_time(visit, topics.figures(admin, [name]))
    return visit.page(
        "topic.html",
        topic=topic,
        partitions=partitions,
        images={one.partition: one for one in admin.topic(name).partitions},
        offsets=offsets,
        figures=everything.get(name),
        minimum=topics.min_insync_replicas(visit.image, admin.topic(name)),
        settings=admin.topic(name).configs,
    )


async def configuration(visit: Visit, name: str) -> Response:
    """Show the configuration of a topic."""
    topic = await topics.get_topic(visit.admin, name)
    entries = await configs.topic_configs(visit.admin, name)
    return visit.page("topic_configs.html", topic=topic, configs=visit.table(CONFIGS, entries))


async def _in_time(visit: Visit, work: Any) -> Any:
    """Return figures of leaders, empty if they are not there within the deadline of a broker."""
    try:
        async with asyncio.timeout(visit.admin.brokers.timeout_ms / 1_000):
            return await work
    except TimeoutError:
        return {}
