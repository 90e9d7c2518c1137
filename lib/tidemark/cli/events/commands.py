"""``tidemark events``: changes of the cluster's metadata. Commands import their work when run."""

from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.output import (
    OutputFormat,
    OutputOption,
    RestOption,
    print_line_document,
    print_rows,
)

app = command_group("List and watch what changes: leaders, ISRs, brokers, topics, settings.")

_COLUMNS = ("at", "type", "subject", "message")


@app.command(name="list")
def list_events(*, rest: RestOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the latest changes that a controller has seen, the oldest first."""
    from tidemark.cli.rest_client import rest_client

    found = rest_client(rest).cluster("GET", "/events")["data"]
    print_rows([_row(one) for one in found], _COLUMNS, output)


@app.command()
def watch(
    *,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many changes.")
    ] = None,
    rest: RestOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print changes as they happen, a line each, until interrupted."""
    from tidemark.cli.rest_client import rest_client

    for number, event in enumerate(rest_client(rest).events("/events"), 1):
        row = _row(event)
        if output.is_table:
            typer.echo("  ".join(str(row[name]) for name in _COLUMNS))
        else:
            print_line_document(row, output)
        if number == count:
            return


def _row(event: dict[str, object]) -> dict[str, object]:
    from tidemark.cli.operations.watch import instant

    at_ms = event["at_ms"]
    assert isinstance(at_ms, int), at_ms
    return {
        "at": instant(at_ms),
        **{name: event[name] for name in _COLUMNS[1:]},
        "id": event["event_id"],
    }
