"""Transactions: open and hanging ones with what they hold, transactional ids, and aborts."""

from typing import Final

from starlette.responses import Response

from controller.admin import transactions
from controller.admin.errors import AdminError
from controller.admin.transactions import OpenView, TransactionView
from controller.console.confirmed import Confirmed
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


def _abort_of(transactional_id: str) -> Confirmed:
    here = path("transactions", transactional_id)
    return Confirmed(
        title="Abort the transaction",
        subject=transactional_id,
        mismatch="The id that was typed is not this one.",
        loses="the records of its open transaction: readers of committed records never see them."
        " Its producer is fenced and has to start again",
        crumbs=[("/transactions", "Transactions"), (here, transactional_id)],
        back=here,
        line=command("txn", "abort", transactional_id, "--yes"),
    )


async def show_abort(visit: Visit, transactional_id: str) -> Response:
    """Ask before a transaction is aborted."""
    return _abort_of(transactional_id).ask(visit)


async def abort(visit: Visit, form: Form, transactional_id: str) -> Response:
    """Abort the open transaction of an id."""
    return await _abort_of(transactional_id).carry_out(
        visit,
        form,
        lambda: transactions.abort(visit.admin, transactional_id),
        then="/transactions",
        done="transaction-aborted",
    )


def _abort_here(topic: str, partition: int, start: int) -> Confirmed:
    words = ["--topic", topic, "--partition", partition, "--start-offset", start, "--yes"]
    return Confirmed(
        title="Abort in this partition",
        subject=f"{topic}-{partition}",
        mismatch="The partition that was typed is not this one.",
        loses=f"the records of the transaction that begins at offset {start} here. No coordinator"
        " is asked: if the transaction was committed in other partitions, they differ from then on",
        crumbs=[("/transactions", "Transactions")],
        back="/transactions",
        line=command("txn", "abort", *words),
    )


async def show_abort_at(visit: Visit, topic: str, partition: str, start: str) -> Response:
    """Ask before a marker is written for a hanging transaction."""
    return _abort_here(topic, _number(partition), _number(start)).ask(visit)


async def abort_at(visit: Visit, form: Form, topic: str, partition: str, start: str) -> Response:
    """Write an abort marker for a hanging transaction to its partition."""
    place = (topic, _number(partition), _number(start))
    return await _abort_here(*place).carry_out(
        visit,
        form,
        lambda: transactions.abort_at(visit.admin, *place),
        then="/transactions",
        done="transaction-aborted",
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise NotFoundError(f"{text!r} is not a number")
    return int(text)
