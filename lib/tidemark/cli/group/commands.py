"""``tidemark group``: commands and their options. Commands import their work when run."""

from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import (
    GROUP_KINDS,
    GROUP_STATES,
    ByDurationOption,
    ExecuteOption,
    GroupArgument,
    GroupsArgument,
    ToDatetimeOption,
    ToEarliestOption,
    ToLatestOption,
    ToOffsetOption,
    among,
)
from tidemark.cli.failure import CommandError
from tidemark.cli.group.config import (
    SettingsOption,
    UnsetOption,
    ValidateOnlyOption,
    show_or_change,
)
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_document,
    print_rows,
    printing_rows,
    say,
)

app = command_group("List, describe, reset and delete consumer groups.")

_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "committed",
    "end",
    "last_stable",
    "lag",
    "stable_lag",
    "time_lag_ms",
    "client_id",
    "host",
)


@app.command(name="list")
def list_groups(
    *,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only those in this state; may be repeated.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="classic, consumer or share; may be repeated."),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List groups."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.group import admin

    states = among(state, GROUP_STATES, "--state")
    kinds = among(kind, GROUP_KINDS, "--kind")
    call = admin.list_all(bootstrap_for(bootstrap), states=states, kinds=kinds)
    print_rows(run(call), ("group", "kind", "state", "protocol", "coordinator"), output)


@app.command()
def describe(
    groups: GroupsArgument,
    *,
    members: Annotated[
        bool, typer.Option("--members", "-m", help="Also show members and their partitions.")
    ] = False,
    stable: Annotated[
        bool,
        typer.Option("--read-committed", help="TIME_LAG_MS as a read_committed consumer has it."),
    ] = False,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="HOST:PORT/CHROOT", help="Also show offsets in ZooKeeper."
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show members, committed offsets and lag.

    LAG counts to the end, STABLE_LAG to the last stable offset, as a read_committed consumer sees
    it; TIME_LAG_MS is the age of the first record that is not committed.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.group import admin

    call = admin.describe(bootstrap_for(bootstrap), groups, stable=stable, zookeeper=zookeeper)
    rows = run(call)
    if not output.is_table:
        print_document(rows, output)
        return
    columns = _PARTITION_COLUMNS + (("zookeeper",) if zookeeper is not None else ())
    for row in rows:
        typer.echo(
            f"{row['group']}  {row['state']}  {row['kind'] or '-'}"
            f"  assignor {row['assignor'] or '-'}  {len(row['members'])} members"
        )
        if members:
            names = ("member", "instance", "client_id", "host", "protocol", "epoch", "partitions")
            print_rows(row["members"], names, output)
        print_rows(row["partitions"], columns, output)


@app.command()
def reset(
    group: GroupArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:0,1]", help="Only these; default: all committed ones."
        ),
    ] = None,
    to_earliest: ToEarliestOption = False,
    to_latest: ToLatestOption = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the current offset, or the nearest in the log.")
    ] = False,
    to_offset: ToOffsetOption = None,
    to_datetime: ToDatetimeOption = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By this many records; backwards if negative.")
    ] = None,
    by_duration: ByDurationOption = None,
    execute: ExecuteOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Move a group's offsets. Refused while it has members."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.group import admin
    from tidemark.cli.group.reset_options import parse_scope, target_of
    from tidemark.plans.offset_reset import Goal, Target

    target = target_of(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        others={
            "--to-current": Target(Goal.CURRENT) if to_current else None,
            "--shift-by": None if shift_by is None else Target(Goal.SHIFT, shift_by),
        },
    )
    scopes = [parse_scope(text) for text in topic or ()]
    job = admin.ResetJob(bootstrap_for(bootstrap), group, target, scopes, execute=execute)
    rows = run(admin.reset(job))
    if not rows:
        raise CommandError(
            f"group {group!r} has no committed offset to move",
            hint="pass --topic TOPIC to set its offsets in a topic",
        )
    print_rows(rows, ("topic", "partition", "before", "after", "outcome"), output)
    if not execute and output.is_table:
        say("nothing was changed; pass --execute to change it")


@app.command()
def delete(
    groups: GroupsArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only the offsets in this topic; may be repeated."),
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete groups without members, and their offsets."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.group import admin
    from tidemark.cli.group.rows import Row

    what = f"the offsets of {', '.join(topic)} in " if topic else ""
    confirm(f"Delete {what}{', '.join(groups)}?", yes=yes)
    rows: list[Row] = []
    with printing_rows(rows, ("group", "outcome"), output):
        run(admin.delete(bootstrap_for(bootstrap), groups, topic or (), rows))


@app.command()
def config(
    group: GroupArgument,
    *,
    settings: SettingsOption = None,
    unset: UnsetOption = None,
    validate_only: ValidateOnlyOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show or change a group's configs, those of the consumer protocol and of share groups."""
    from tidemark.cli.group.admin import configs

    show_or_change(
        configs,
        group,
        settings=settings,
        unset=unset,
        validate_only=validate_only,
        bootstrap=bootstrap,
        output=output,
    )
