"""``tidemark operations``: long actions of the cluster. Commands import their work when run."""

from enum import StrEnum
from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.output import (
    OutputFormat,
    OutputOption,
    RestOption,
    YesOption,
    confirm,
    print_rows,
    progress,
)

app = command_group("List, show and cancel long actions: moves, drains, decommissions.")

IdArgument = Annotated[str, typer.Argument(metavar="ID")]


class StateName(StrEnum):
    """States of an operation."""

    PENDING = "pending"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@app.command(name="list")
def list_operations(
    *,
    state: Annotated[
        StateName | None, typer.Option("--state", help="Only those in this state.")
    ] = None,
    rest: RestOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List operations, the latest first."""
    from tidemark.cli.operations import watch
    from tidemark.cli.rest_client import rest_client

    rows = watch.listed(rest_client(rest), None if state is None else state.value)
    print_rows(rows, watch.COLUMNS, output)


@app.command()
def show(
    operation: IdArgument,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended; 1 if it has not succeeded.")
    ] = False,
    rest: RestOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show one operation with its messages."""
    from tidemark.cli.operations import watch
    from tidemark.cli.rest_client import rest_client

    client = rest_client(rest)
    row = watch.shown(client, operation)
    if wait:
        with progress(row["action"], 100) as advance:
            row = watch.ended(client, operation, advance)
    print_rows([row], watch.COLUMNS, output)
    if output.is_table:
        print_rows(row["messages"], ("at", "text"), output)


@app.command()
def cancel(
    operation: IdArgument,
    *,
    rest: RestOption = None,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Cancel an operation. Moves that have ended are not undone."""
    from tidemark.cli.operations import watch
    from tidemark.cli.rest_client import rest_client

    confirm(f"Cancel operation {operation}?", yes=yes)
    print_rows([watch.cancelled(rest_client(rest), operation)], watch.COLUMNS, output)
