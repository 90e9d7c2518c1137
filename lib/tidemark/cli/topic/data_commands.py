"""``tidemark topic purge|clone|configs|offsets``. Commands import their work when run."""

from typing import Annotated

import typer

from tidemark.cli.arguments import TopicArgument
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_rows,
    say,
)
from tidemark.cli.topic.commands import ConfigOption
from tidemark.cli.topic.commands import app as app
from tidemark.runtime.exit_codes import ExitCode

PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
]


@app.command()
def purge(
    topic: TopicArgument,
    *,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            help="First position to keep: latest, an offset, @milliseconds, or a time (ISO 8601).",
        ),
    ] = "latest",
    partition: PartitionsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete the records of a topic, or those before a position. The topic and its offsets stay."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import data_admin
    from tidemark.cli.topic.formats import parse_start

    start = parse_start(before, "--before")
    if start.kind == "earliest":
        raise CommandError("--before earliest deletes nothing", code=ExitCode.USAGE)
    if not dry_run:
        what = "all records" if start.kind == "latest" else f"the records before {before}"
        confirm(f"Delete {what} of {topic}?", yes=yes)
    servers = bootstrap_for(bootstrap)
    rows = run(data_admin.purge(servers, topic, partition or (), start, execute=not dry_run))
    print_rows(rows, ("topic", "partition", "start", "new_start", "records", "outcome"), output)
    if dry_run and output.is_table:
        say("nothing was deleted; without --dry-run it is")


@app.command()
def clone(
    topic: TopicArgument,
    name: Annotated[str, typer.Argument(metavar="NEW")],
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Default: those of the topic.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", help="Default: that of the topic.")
    ] = None,
    config: ConfigOption = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check only, create nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create a topic with the partitions, replicas and configs of another one, without records."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import data_admin
    from tidemark.cli.topic.lines import parse_pairs

    call = data_admin.clone(
        bootstrap_for(bootstrap),
        topic,
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=parse_pairs(config, "--config"),
        validate_only=validate_only,
    )
    columns = ("topic", "outcome", "partitions", "replication_factor", "configs")
    print_rows(run(call), columns, output)


@app.command()
def configs(
    topic: TopicArgument,
    *,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that have their default.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a topic's configs with their sources and defaults."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.config import admin
    from tidemark.client.admin.types import ConfigResource

    resource = ConfigResource("topic", topic)
    rows = run(admin.list_all(bootstrap_for(bootstrap), resource, defaults=everything))
    print_rows(rows, ("name", "value", "source", "default"), output)


@app.command()
def offsets(
    topic: TopicArgument,
    *,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Also the offset of @milliseconds or a time (ISO 8601)."),
    ] = None,
    partition: PartitionsOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show start, end and last stable offset of each partition."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import data_admin
    from tidemark.cli.topic.formats import parse_start

    moment = None if at is None else parse_start(at, "--at")
    if moment is not None and moment.kind != "timestamp":
        raise CommandError(
            f"--at {at} is not a time", hint="@milliseconds, or ISO 8601", code=ExitCode.USAGE
        )
    rows = run(data_admin.offsets(bootstrap_for(bootstrap), topic, partition or (), moment))
    columns = ("topic", "partition", "start", "end", "last_stable", "offsets")
    print_rows(rows, columns if at is None else (*columns, "at"), output)
