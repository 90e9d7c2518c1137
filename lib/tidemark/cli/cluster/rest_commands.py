"""``tidemark cluster``: what controllers do and measure: drains, decommissions, throughput.

Commands import their work when run.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from tidemark.cli.cluster.commands import app
from tidemark.cli.output import (
    OutputFormat,
    OutputOption,
    RestOption,
    YesOption,
    confirm,
    print_rows,
    progress,
    say,
)

BrokerArgument = Annotated[int, typer.Argument(metavar="BROKER", min=0)]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the moves; change nothing.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until it has ended; 1 if it has not succeeded.")
]


@app.command()
def drain(
    broker: BrokerArgument,
    *,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    rest: RestOption = None,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Take all leaderships from a broker; its replicas stay."""
    if not dry_run:
        confirm(f"Take all leaderships from broker {broker}?", yes=yes)
    _begin(broker, "drain", rest, output, dry_run=dry_run, wait=wait)


@app.command()
def undrain(
    broker: BrokerArgument,
    *,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    rest: RestOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Give a drained broker its leaderships back."""
    _begin(broker, "undrain", rest, output, dry_run=dry_run, wait=wait)


@app.command()
def decommission(
    broker: BrokerArgument,
    *,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    rest: RestOption = None,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Move all replicas away from a broker, so that it can be removed."""
    if not dry_run:
        confirm(f"Move all replicas away from broker {broker}?", yes=yes)
    _begin(broker, "decommission", rest, output, dry_run=dry_run, wait=wait)


def _begin(
    broker: int, verb: str, rest: str | None, output: OutputFormat, *, dry_run: bool, wait: bool
) -> None:
    """Begin an operation on a broker and print its row; in a dry run print its moves."""
    from tidemark.cli.operations import watch
    from tidemark.cli.rest_client import rest_client

    client = rest_client(rest)
    path = f"/brokers/{broker}:{verb}"
    if dry_run:
        moves = client.cluster("POST", path, dry_run="true")["moves"]
        print_rows(moves, ("topic_name", "partition_id", "before", "after"), output)
        return
    row = watch.row_of(client.cluster("POST", path))
    if wait:
        with progress(verb, 100) as advance:
            row = watch.ended(client, row["id"], advance)
    print_rows([row], watch.COLUMNS, output)


@app.command("can-replace")
def can_replace(
    broker: BrokerArgument, *, rest: RestOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show what an empty disk for a broker that is not alive would cost. Exit code 1 if a gate
    refuses it.
    """
    from tidemark.cli.rest_client import rest_client
    from tidemark.runtime.exit_codes import ExitCode

    found = rest_client(rest).cluster("GET", f"/brokers/{broker}:can-replace")
    row = {key: value for key, value in found.items() if key not in ("kind", "metadata")}
    print_rows([row], ("broker_id", "can_replace"), output)
    if output.is_table:
        _print_risks(row["risks"], output)
    if broker not in row["brokers_fenced"]:
        say(f"broker {broker} is alive: only one that is stopped or lost gets an empty disk")
    if not row["can_replace"]:
        raise typer.Exit(ExitCode.FAILED)


def _print_risks(risks: Sequence[Mapping[str, Any]], output: OutputFormat) -> None:
    """Print a row for each partition that REST names; there may be more of them."""
    rows = [
        {
            "risk": risk["kind"],
            "topic": partition["topic_name"],
            "partition": partition["partition_id"],
            "meaning": risk["meaning"],
        }
        for risk in risks
        for partition in risk["partitions"]
    ]
    if rows:
        print_rows(rows, ("risk", "topic", "partition", "meaning"), output)
    for risk in risks:
        if more := risk["partitions_count"] - len(risk["partitions"]):
            say(f"{risk['kind']}: {more} more partitions")


@app.command()
def traffic(*, rest: RestOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show bytes and records a second of each broker, as a controller measured them last."""
    from tidemark.cli.rest_client import rest_client

    found = rest_client(rest).cluster("GET", "/traffic")
    rows = [
        {"broker": one["broker_id"], **(one["rates"] or {}), "problem": one.get("problem")}
        for one in found["brokers"]
    ]
    named = [name for row in rows for name in row if name not in ("broker", "problem")]
    print_rows(rows, ("broker", *dict.fromkeys(named), "problem"), output)
