"""``tidemark cluster``: brokers, health, elections, moves. Commands import their work when run."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import seconds
from tidemark.cli.cluster.reassign_commands import app as reassign_app
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_document,
    print_line_document,
    print_rows,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

app = command_group("Show brokers and health, elect leaders, move replicas, drain brokers.")
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
def health(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Check again and again.")] = False,
    exit_when_healthy: Annotated[
        bool, typer.Option("--exit-when-healthy", help="Watch until the cluster is healthy.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=0.1,
            metavar="SECONDS",
            callback=seconds,
            help="Between two checks.",
        ),
    ] = 2.0,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0,
            metavar="SECONDS",
            callback=seconds,
            help="End the watch after this time.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show missing brokers, and partitions that are leaderless, below min.insync.replicas or not
    fully replicated.

    Exit code 1 when there are any. With --exit-when-healthy 75 if the timeout ends first.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin, watch_health

    servers = bootstrap_for(bootstrap)
    if not (watch or exit_when_healthy):
        found = run(admin.health(servers))
        _show_health(found, output)
    else:
        asked = watch_health.HealthWatch(
            int(interval * 1_000),
            exit_when_healthy,
            None if timeout is None else int(timeout * 1_000),
        )
        show = _HealthScreen(output).show
        last = run(watch_health.watch(lambda: admin.health(servers), asked, show))
        if last is None:
            raise CommandError(
                f"the cluster was not healthy within {timeout:g} s",
                hint="tidemark cluster health, for what is wrong",
                code=ExitCode.TEMPORARY,
            )
        found = last
    if not found["healthy"]:
        raise typer.Exit(ExitCode.FAILED)


def _show_health(found: dict[str, Any], output: OutputFormat) -> None:
    if not output.is_table:
        print_document(found, output)
        return
    typer.echo("\n".join(_health_lines(found)))


def _health_lines(found: dict[str, Any]) -> list[str]:
    """Return the lines for people; of a cluster that does not answer, the problem."""
    if "problem" in found:
        return [f"not healthy: {found['problem']}"]
    live = ", ".join(map(str, found["brokers"]))
    lines = [f"{found['partitions']} partitions on brokers {live}"]
    for what in ("missing_brokers", "leaderless", "below_min_isr", "under_replicated"):
        names = [str(name) for name in found[what]]
        shown = " ".join(names[:NAMES_SHOWN_MAX]) + (" ..." if names[NAMES_SHOWN_MAX:] else "")
        lines.append(f"{what.replace('_', ' ')}: {len(names)} {shown}".rstrip())
    return [*lines, "healthy" if found["healthy"] else "not healthy"]


class _HealthScreen:
    """Output of a watch: the lines when they change, or a document for each check."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output
        self._lines: list[str] = []

    def show(self, found: dict[str, Any]) -> None:
        """Show one check."""
        if not self._output.is_table:
            print_line_document(found, self._output)
            return
        lines = _health_lines(found)
        if lines != self._lines:
            typer.echo("\n".join([*([""] if self._lines else []), *lines]))
        self._lines = lines


@app.command("can-restart")
def can_restart(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0)],
    *,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what the restart of a broker would risk. Exit code 1 when there is a risk.

    Risks: a partition with this replica alone (replication_factor_1), none other in sync
    (unavailable), acks=all refused (below_min_isr), records acknowledged with acks=1 that no other
    replica has (acks_1_loss).
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin

    found = run(admin.can_restart(bootstrap_for(bootstrap), broker))
    if not output.is_table:
        print_document(found, output)
    elif found["risks"]:
        print_rows(found["risks"], ("risk", "topic", "partition", "meaning"), output)
    else:
        say(
            f"broker {broker} can be restarted: none of its {found['partitions']} partitions"
            " would suffer"
        )
    if found["risks"]:
        raise typer.Exit(ExitCode.FAILED)


@app.command("log-dirs")
def log_dirs(
    brokers: Annotated[
        list[int] | None, typer.Argument(metavar="[BROKER...]", help="Default: all live ones.")
    ] = None,
    *,
    logs: Annotated[bool, typer.Option("--logs", help="Also show each partition's log.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show log directories: state, space, and the sizes of the logs in them."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin

    rows = run(admin.log_dirs(bootstrap_for(bootstrap), brokers or ()))
    columns = ("broker", "path", "state", "total_bytes", "usable_bytes", "replicas", "log_bytes")
    print_rows(rows, columns, output)
    if logs and output.is_table:
        found = [{"broker": row["broker"], **each} for row in rows for each in row["logs"]]
        typer.echo("")
        print_rows(found, ("broker", "topic", "partition", "bytes", "behind", "future"), output)


@app.command("move-log-dir")
def move_log_dir(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0)],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory, as log-dirs shows it.")],
    partitions: Annotated[list[str], typer.Argument(metavar="TOPIC:PARTITION...")],
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the replicas are there.")
    ] = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Move replicas of a broker to another log directory of it. The partitions stay in service.

    A copy is made and takes the replica's place at the end; log-dirs --logs shows it as future. The
    directory in which a replica is ends its move.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import log_dir_moves
    from tidemark.cli.partition_names import partition_named

    named = [partition_named(one) for one in partitions]
    later = run(log_dir_moves.move(bootstrap_for(bootstrap), broker, path, named, wait=wait))
    for one in later:
        say(f"{one} is not on broker {broker} yet; it will be created in {path}")
    if len(named) > len(later):
        say(f"{len(named) - len(later)} moves {'done' if wait else 'started'}")


@app.command()
def unregister(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0)],
    *,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Forget a broker that will not return: it is stopped, and has no replicas.

    Its dynamic configuration goes too. A broker that starts with this id later joins as a new one.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import admin

    servers = bootstrap_for(bootstrap)
    confirm(f"Unregister broker {broker}? Its dynamic configuration is removed", yes=yes)
    run(admin.unregister(servers, broker))
    say(f"broker {broker} is unregistered")


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
    yes: YesOption = False,
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
    if unclean:
        confirm("Elect replicas that are not in sync? Records that they lack are lost", yes=yes)
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
