"""``tidemark cluster``: brokers, health, elections, moves. Commands import their work when run."""

from enum import StrEnum
from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.cluster.reassign_commands import app as reassign_app
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    bootstrap_for,
    print_document,
    print_rows,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

app = command_group("Show brokers and health, elect leaders, move replicas.")
app.add_typer(reassign_app, name="reassign")

NAMES_SHOWN_MAX = 20


class ElectionType(StrEnum):
    """Types of elections, by Kafka's names."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@app.command()
def brokers(
    *, bootstrap: BootstrapOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show the live brokers, what each leads, and how many of its replicas are in sync."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin

    rows = run(admin.brokers(bootstrap_for(bootstrap)))
    print_rows(rows, ("broker", "address", "rack", "leads", "replicas", "in_sync"), output)


@app.command()
def health(*, bootstrap: BootstrapOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show partitions without a leader or not fully replicated. Exit code 1 when there are any."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin

    found = run(admin.health(bootstrap_for(bootstrap)))
    if not output.is_table:
        print_document(found, output)
    else:
        live = ", ".join(map(str, found["brokers"]))
        say(f"{found['partitions']} partitions on brokers {live}")
        for what in ("leaderless", "under_replicated"):
            names = found[what]
            shown = " ".join(names[:NAMES_SHOWN_MAX]) + (" ..." if names[NAMES_SHOWN_MAX:] else "")
            say(f"{what.replace('_', ' ')}: {len(names)} {shown}".rstrip())
        say("healthy" if found["healthy"] else "not healthy")
    if not found["healthy"]:
        raise typer.Exit(ExitCode.FAILED)


@app.command("elect-leaders")
def elect_leaders(
    *,
    election_type: Annotated[
        ElectionType, typer.Option("--election-type", help="An unclean election may lose records.")
    ] = ElectionType.PREFERRED,
    topic: Annotated[str | None, typer.Option("--topic", help="Only in this topic.")] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", help="Partition of the topic; may be repeated."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "--all-topic-partitions", help="In all partitions.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Elect preferred replicas, or (unclean) elect leaders of partitions without one."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin
    from tidemark.model.topics import TopicPartition

    if everything == (topic is not None):
        raise CommandError("name either --topic or --all", hint="see --help", code=ExitCode.USAGE)
    if topic is not None and not partition:
        raise CommandError(
            f"--topic {topic} needs --partition",
            hint="tidemark topic describe shows them; --all takes every partition",
            code=ExitCode.USAGE,
        )
    wanted = None if topic is None else [TopicPartition(topic, one) for one in partition or ()]
    unclean = election_type is ElectionType.UNCLEAN
    rows = run(admin.elect_leaders(bootstrap_for(bootstrap), wanted, unclean=unclean))
    if not rows and output.is_table:
        say("every partition already has the requested leader")
        return
    print_rows(rows, ("topic", "partition", "result", "error"), output)
    if any(row["result"] == "failed" for row in rows):
        raise typer.Exit(ExitCode.FAILED)


@app.command("preferred-replica-election", hidden=True)
def preferred_replica_election(
    *, bootstrap: BootstrapOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Kafka's old name for elect-leaders --all."""
    elect_leaders(everything=True, bootstrap=bootstrap, output=output)
