"""``tidemark producers``: the producers that partitions remember."""

from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import TopicsArgument
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    bootstrap_for,
    print_rows,
)

app = command_group("Show the producers of partitions: epochs, sequences, open transactions.")

_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "idle_ms",
    "open_since_offset",
    "transactional_id",
)


@app.callback()
def producers() -> None:
    """Show the producers of partitions: epochs, sequences, open transactions."""


@app.command(name="list")
def list_producers(
    topics: TopicsArgument,
    *,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    open_only: Annotated[
        bool, typer.Option("--open", help="Only those with an open transaction.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List idempotent and transactional producers of topics, as the leaders remember them."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.txn import producers_admin

    call = producers_admin.list_all(
        bootstrap_for(bootstrap), topics, partition or (), open_only=open_only
    )
    print_rows(run(call), _COLUMNS, output)
