"""Dead letters: share groups with a queue, and the letters of one group."""

from typing import Final

from starlette.responses import Response

from controller.admin import dead_letters
from controller.admin.dead_letters import DeadLetterQueue, Letter, WaitingLetters
from controller.console.tables import Column, Table
from controller.console.visit import Visit

LETTERS_SHOWN: Final = 200
QUEUES: Final[Table[DeadLetterQueue]] = Table(
    columns=(
        Column("group", "Share group", lambda row: row.group_id),
        Column("queue", "Queue", lambda row: row.queue),
        Column("state", "State", lambda row: row.state),
        Column("copies", "Letters have", lambda row: row.copies_record),
    ),
    text_of=lambda row: f"{row.group_id} {row.queue} {row.state}",
    sort="group",
    noun="share group",
)
LETTERS: Final[Table[Letter]] = Table(
    columns=(
        Column("source", "Record", lambda row: (row.source_topic or "", row.source_offset or 0)),
        Column("time", "Given up (UTC)", lambda row: row.timestamp_ms),
        Column("count", "Deliveries", lambda row: row.delivery_count, is_number=True),
        Column("reason", "Reason", lambda row: row.reason or ""),
        Column("letter", "Letter"),
    ),
    text_of=lambda row: (
        f"{row.source_topic}-{row.source_partition} {row.source_offset} {row.reason}"
    ),
    sort="-time",
    noun="letter",
    label="Letters",
)
WAITING: Final[Table[WaitingLetters]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: (row.topic_name, row.partition_id)),
        Column("waiting", "Waiting", lambda row: row.waiting, is_number=True),
        Column("problem", "Why", lambda row: row.problem or ""),
    ),
    text_of=lambda row: f"{row.topic_name}-{row.partition_id} {row.problem}",
    sort="-waiting",
    prefix="w.",
    noun="partition",
    label="Letters that wait",
)


async def show_all(visit: Visit) -> Response:
    """Show all share groups with a queue."""
    found = dead_letters.queues(visit.admin)
    return visit.page("dead_letters.html", queues=visit.table(QUEUES, found))


async def show(visit: Visit, group_id: str) -> Response:
    """Show the queue of one group. Letters come as a part."""
    queue = dead_letters.queue_of(visit.admin, group_id)
    return visit.page("dead_letters_of.html", queue=queue, parts=visit.request.url.query)


async def waiting(visit: Visit, group_id: str) -> Response:
    """Show the letters that are not in the queue yet, as a part."""
    found = await dead_letters.waiting(visit.admin, group_id)
    return visit.page("parts/letters_waiting.html", waiting=visit.table(WAITING, found))


async def letters(visit: Visit, group_id: str) -> Response:
    """Show the latest letters of a group, as a part."""
    queue = dead_letters.queue_of(visit.admin, group_id)
    found = await dead_letters.letters(visit.admin, group_id, LETTERS_SHOWN)
    return visit.page(
        "parts/letters.html",
        queue=queue,
        found=found,
        letters=visit.table(LETTERS, found.letters),
        limit=LETTERS_SHOWN,
    )
