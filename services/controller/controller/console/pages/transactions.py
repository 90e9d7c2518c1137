"""Transactions: open and hanging ones with what they hold, transactional ids, and aborts."""

from typing import Final

from starlette.responses import Response

from controller.admin import transactions
from controller.admin.errors import AdminError
from controller.admin.transactions import OpenView, TransactionView
from controller.console.forms import Form
from controller.console.names import command, path
from controller.console.tables import Column, Table
from controller.console.visit import NotFoundError, Visit

OPEN: Final[Table[OpenView]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: (row.topic_name, row.partition_id)),
        Column("id", "Transactional id", lambda row: row.transactional_id or ""),
        Column("state", "State", lambda row: (not row.is_hanging, row.state or "")),
        Column("start", "First offset", lambda row: row.start_offset, is_number=True),
        Column("open", "Open for", lambda row: row.open_ms, is_number=True),
        Column("idle", "Last write", lambda row: row.idle_ms, is_number=True),
        Column("held", "Holds readers", lambda row: row.held_ms, is_number=True),
        Column("abort", ""),
    ),
    text_of=lambda row: (
        f"{row.topic_name}-{row.partition_id} {row.transactional_id or ''} {row.producer_id}"
        f" {'hanging' if row.is_hanging else row.state or ''}"
    ),
    sort="-held",
    noun="open transaction",
    prefix="o.",
)
IDS: Final[Table[TransactionView]] = Table(
    columns=(
        Column("id", "Transactional id", lambda row: row.transactional_id),
        Column("state", "State", lambda row: row.state),
        Column("producer", "Producer id", lambda row: row.producer_id, is_number=True),
    ),
    text_of=lambda row: f"{row.transactional_id} {row.state} {row.producer_id}",
    sort="id",
    noun="transactional id",
)


async def show_all(visit: Visit) -> Response:
    """Show open transactions, which come as a part, and all transactional ids."""
    problem = ""
    listed: list[TransactionView] = []
    try:
        listed = await transactions.list_transactions(visit.admin)
    except AdminError as error:
        problem = error.message
    return visit.page(
        "transactions.html",
        ids=visit.table(IDS, listed),
        problem=problem,
        parts=visit.request.url.query,
    )


async def open_now(visit: Visit) -> Response:
    """Show the transactions that are open in partitions, as a part."""
    rows, problems = await transactions.open_transactions(visit.admin)
    return visit.page(
        "parts/open_transactions.html", rows=visit.table(OPEN, rows), problems=problems
    )


async def show(visit: Visit, transactional_id: str) -> Response:
    """Show one transactional id."""
    found = await transactions.get_transaction(visit.admin, transactional_id)
    return visit.page("transaction.html", one=found)


async def show_abort(visit: Visit, transactional_id: str) -> Response:
    """Ask before a transaction is aborted."""
    return _abort_page(visit, transactional_id)


async def abort(visit: Visit, form: Form, transactional_id: str) -> Response:
    """Abort the open transaction of an id."""
    if form.text("confirm") != transactional_id:
        return _abort_page(visit, transactional_id, "The id that was typed is not this one.")
    try:
        await transactions.abort(visit.admin, transactional_id)
    except AdminError as problem:
        return _abort_page(visit, transactional_id, problem.message)
    return visit.go_on("/transactions", done="transaction-aborted")


def _abort_page(visit: Visit, transactional_id: str, problem: str = "") -> Response:
    here = path("transactions", transactional_id)
    return visit.page(
        "confirm.html",
        status=400 if problem else 200,
        title="Abort the transaction",
        subject=transactional_id,
        crumbs=[("/transactions", "Transactions"), (here, transactional_id)],
        loses="the records of its open transaction: readers of committed records never see them."
        " Its producer is fenced and has to start again",
        problem=problem,
        back=here,
        line=command("txn", "abort", transactional_id, "--yes"),
    )


async def show_abort_at(visit: Visit, topic: str, partition: str, start: str) -> Response:
    """Ask before a marker is written for a hanging transaction."""
    return _abort_at_page(visit, (topic, _number(partition), _number(start)))


async def abort_at(visit: Visit, form: Form, topic: str, partition: str, start: str) -> Response:
    """Write an abort marker for a hanging transaction to its partition."""
    place = (topic, _number(partition), _number(start))
    if form.text("confirm") != f"{topic}-{place[1]}":
        return _abort_at_page(visit, place, "The partition that was typed is not this one.")
    try:
        await transactions.abort_at(visit.admin, *place)
    except AdminError as problem:
        return _abort_at_page(visit, place, problem.message)
    return visit.go_on("/transactions", done="transaction-aborted")


def _abort_at_page(visit: Visit, place: tuple[str, int, int], problem: str = "") -> Response:
    topic, partition, start = place
    words = ["--topic", topic, "--partition", partition, "--start-offset", start, "--yes"]
    return visit.page(
        "confirm.html",
        status=400 if problem else 200,
        title="Abort in this partition",
        subject=f"{topic}-{partition}",
        crumbs=[("/transactions", "Transactions")],
        loses=f"the records of the transaction that begins at offset {start} here. No coordinator"
        " is asked: if the transaction was committed in other partitions, they differ from then on",
        problem=problem,
        back="/transactions",
        line=command("txn", "abort", *words),
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise NotFoundError(f"{text!r} is not a number")
    return int(text)
