"""``tidemark txn``: commands and their options. Commands import their work when run."""

from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    GrpcBootstrapOption,
    OutputFormat,
    OutputOption,
    TransportChoice,
    TransportOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_rows,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

app = command_group("List, describe and end transactions.")

_TIMEOUT_MS_MAX = 900_000  # transaction.max.timeout.ms
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only in this topic; may be repeated. Default: all topics."),
]
_OPEN_COLUMNS = (
    "topic",
    "partition",
    "start_offset",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "state",
    "open_ms",
    "idle_ms",
)

_SINK_COLUMNS = ("query_id", "committed_batch", "open_batch")


@app.command(name="list")
def list_transactions(
    *,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging", help="Only transactions that no producer or coordinator will end."
        ),
    ] = False,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only those in this state; may be repeated.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that match (regular expression).")
    ] = None,
    duration_ms_min: Annotated[
        int,
        typer.Option("--min-duration-ms", help="Only transactions open for at least this long."),
    ] = -1,
    timeout_ms_max: Annotated[
        int,
        typer.Option(
            "--max-timeout-ms",
            min=0,
            help="With --hanging: transaction.max.timeout.ms of the coordinators.",
        ),
    ] = _TIMEOUT_MS_MAX,
    topic: TopicOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List transactional ids, or hanging transactions. Exit code 1 if there are hanging ones."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.txn import admin

    servers = bootstrap_for(bootstrap)
    if not hanging:
        call = admin.list_all(
            servers, states=state or (), pattern=pattern, duration_ms_min=duration_ms_min
        )
        print_rows(run(call), ("transactional_id", "producer_id", "state"), output)
        return
    rows = run(admin.list_hanging(servers, topic or (), timeout_ms_max=timeout_ms_max))
    print_rows(rows, _OPEN_COLUMNS, output)
    if rows:
        say("to end one: tidemark txn abort --topic T --partition P --start-offset O")
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def holders(
    *,
    topic: TopicOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the transactions that hold back last stable offsets, and for how long."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.txn import admin

    rows = run(admin.holders(bootstrap_for(bootstrap), topic or ()))
    print_rows(rows, (*_OPEN_COLUMNS, "held_ms"), output)


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    *,
    bootstrap: BootstrapOption = None,
    transport: TransportOption = TransportChoice.KAFKA,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show state, producer, age and partitions of transactional ids.

    With --transport grpc also what is known of a sink's batches: whose they are, which is done.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.txn import admin

    columns = (
        "transactional_id",
        "state",
        "producer_id",
        "producer_epoch",
        "timeout_ms",
        "open_ms",
        "partitions",
    )
    servers = bootstrap_for(bootstrap, transport)
    if transport is TransportChoice.KAFKA:
        print_rows(run(admin.describe(servers, transactional_ids)), columns, output)
        return
    rows = run(admin.describe_with_sinks(servers, transactional_ids))
    print_rows(rows, (*columns, *_SINK_COLUMNS), output)


@app.command()
def forget(
    sink_id: Annotated[str, typer.Argument(metavar="SINK")],
    *,
    abort_open: Annotated[
        bool, typer.Option("--abort-open", help="Abort the open batch, if any.")
    ] = False,
    yes: YesOption = False,
    bootstrap: GrpcBootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Forget which batches a sink has; a query that replays them writes them again."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.txn import sinks

    confirm(f"Forget {sink_id}? Batches that are replayed will be written twice", yes=yes)
    servers = bootstrap_for(bootstrap, TransportChoice.GRPC)
    rows = run(sinks.forget(servers, sink_id, abort_open=abort_open))
    print_rows(rows, tuple(rows[0]), output)


@app.command()
def abort(
    transactional_id: Annotated[str | None, typer.Argument(metavar="[ID]")] = None,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic of a hanging transaction.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    start_offset: Annotated[int | None, typer.Option("--start-offset", min=0)] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Abort the transaction of an ID at its coordinator, or a hanging one in its partition.

    With an ID, its producer is fenced. With --topic, --partition and --start-offset a marker is
    written without a coordinator's decision; use it only for what `txn list --hanging` shows.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.txn import admin
    from tidemark.model.topics import TopicPartition

    servers = bootstrap_for(bootstrap)
    place = (topic, partition, start_offset)
    if (transactional_id is None) == all(each is None for each in place):
        raise CommandError(
            "name either an ID, or --topic, --partition and --start-offset",
            hint="see tidemark txn list, or tidemark txn list --hanging",
            code=ExitCode.USAGE,
        )
    what = transactional_id or f"the transaction in {topic}"
    confirm(f"Abort {what}? Its records will never be delivered", yes=yes)
    if transactional_id is not None:
        rows = run(admin.abort_by_id(servers, transactional_id))
    else:
        if topic is None or partition is None or start_offset is None:
            raise CommandError(
                "--topic, --partition and --start-offset must be given together",
                code=ExitCode.USAGE,
            )
        rows = run(admin.abort_at(servers, TopicPartition(topic, partition), start_offset))
    print_rows(rows, tuple(rows[0]), output)
