"""``tidemark debug``: material for a diagnosis. Commands import their work when run."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli import settings
from tidemark.cli.apps import command_group
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    GrpcBootstrapOption,
    OutputFormat,
    OutputOption,
    TransportChoice,
    bootstrap_for,
    print_document,
    print_rows,
    progress,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

app = command_group("Collect what a diagnosis needs, show slow requests, and set log levels.")

SecondBootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--grpc-bootstrap",
        metavar="HOST:PORT,...",
        help="gRPC addresses of brokers; default: the setting grpc-bootstrap.",
    ),
]
_PROBLEMS_SHOWN_MAX = 5
_REQUEST_COLUMNS = (
    "broker",
    "began",
    "api",
    "client_id",
    "peer",
    "size_bytes",
    "total_us",
    "stages_us",
)


@app.callback()
def debug() -> None:
    """Collect what a diagnosis needs, show slow requests, and set log levels."""


@app.command()
def bundle(
    *,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Default: tidemark-debug-<time>.zip here."),
    ] = None,
    ops: Annotated[
        list[str] | None,
        typer.Option(
            "--ops",
            metavar="HOST:PORT",
            help="HTTP address (ops.listen, rest.listen) of a process; may be repeated. Those of an"
            " embedded cluster are added.",
        ),
    ] = None,
    log_mib: Annotated[
        int, typer.Option("--log-mib", min=0, max=1024, help="MiB of each log, from its end.")
    ] = 8,
    grpc_bootstrap: SecondBootstrapOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write logs, configurations without secrets, metadata, metrics and stacks into a zip file.

    What cannot be collected is named in its manifest.json, with the reason.
    """
    from tidemark.cli.debug import cluster_state, sources
    from tidemark.cli.debug.bundle import write_bundle

    for address in ops or ():
        _check_address(address)
    directory = settings.embedded_directory()
    wanted = [
        *cluster_state.of_cluster(bootstrap_for(bootstrap)),
        cluster_state.slow_requests_of(bootstrap_for(grpc_bootstrap, TransportChoice.GRPC)),
        *(each for address in ops or () for each in sources.of_process(address, address)),
        *sources.of_machine(directory),
        sources.of_settings(_settings_in_force()),
    ]
    if directory is not None:
        wanted += sources.of_embedded(directory, log_mib * 1024 * 1024)
    elif not ops:
        say("no process was named: --ops HOST:PORT adds its metrics and stacks")
    path = to or Path(_file_name())
    with progress("collecting", len(wanted)) as advance:
        written = write_bundle(path, wanted, advance)
    if not output.is_table:
        print_document(
            {
                "file": str(path),
                "bytes": written.bytes,
                "entries": len(written.entries),
                "problems": written.problems,
            },
            output,
        )
        return
    say(
        f"{path}: {len(written.entries)} files, {written.bytes:,} bytes; read it before you send it"
    )
    for problem in written.problems[:_PROBLEMS_SHOWN_MAX]:
        say(f"  missing {problem['path']}: {problem['problem']}")
    if len(written.problems) > _PROBLEMS_SHOWN_MAX:
        say(f"  and {len(written.problems) - _PROBLEMS_SHOWN_MAX} more, see its manifest.json")


@app.command()
def requests(
    *,
    broker: Annotated[
        list[int] | None,
        typer.Option("--broker", min=0, metavar="ID", help="Only of this broker; may be repeated."),
    ] = None,
    api: Annotated[
        str | None, typer.Option("--api", help="Only of this API, as Produce or Fetch.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 20,
    bootstrap: GrpcBootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the slowest requests that brokers remember, with the time of each stage.

    Brokers remember requests that took slow.request.ms or longer. Stages: handling on the event
    loop, waiting for replicas or a coordinator, ordering behind answers of the same connection.
    """
    from tidemark.cli.client_calls import as_command_error, run
    from tidemark.cli.debug.slow import slow_requests

    servers = bootstrap_for(bootstrap, TransportChoice.GRPC)
    call = slow_requests(servers, broker or (), api=api, count=count)
    found = run(call, api="ListSlowRequests")
    print_rows(found.rows, _REQUEST_COLUMNS, output)
    for note in found.notes if output.is_table else ():
        say(note)
    if found.failures and not found.rows:
        raise as_command_error(found.failures[0], api="ListSlowRequests")


@app.command(name="log-level")
def log_level(
    level: Annotated[
        str | None,
        typer.Argument(metavar="[LEVEL]", help="DEBUG, INFO, WARNING, ERROR or CRITICAL."),
    ] = None,
    *,
    logger: Annotated[
        str | None,
        typer.Option(
            "--logger", metavar="NAME", help="This logger and those below it, as broker.shell."
        ),
    ] = None,
    process: Annotated[
        list[str] | None,
        typer.Option(
            "--process",
            metavar="NAME",
            help="Process of an embedded cluster, as broker-1; may be repeated. Default: all.",
        ),
    ] = None,
    ops: Annotated[
        list[str] | None,
        typer.Option(
            "--ops",
            metavar="HOST:PORT",
            help="HTTP address (ops.listen, rest.listen) of a process; may be repeated.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the log levels of running processes, or set one until the process ends."""
    from tidemark.cli.debug import log_levels

    for address in ops or ():
        _check_address(address)
    processes = {address: address for address in ops or ()}
    if process or not ops:
        directory = settings.embedded_directory()
        processes |= log_levels.embedded_processes(directory, process or ())
    if not processes:
        raise CommandError(
            "no process was named, and there is no embedded cluster",
            hint="tidemark debug log-level --ops HOST:PORT",
            code=ExitCode.USAGE,
        )
    if level is None:
        rows = log_levels.levels(processes, logger=logger)
    else:
        rows = log_levels.set_levels(processes, level, logger=logger or log_levels.EVERY_LOGGER)
    print_rows(rows, ("process", "logger", "level"), output)


def _file_name() -> str:
    from tidemark.runtime.clock import Clock

    moment = datetime.fromtimestamp(Clock().wall_ms() / 1_000, tz=UTC)
    return f"tidemark-debug-{moment:%Y%m%dT%H%M%SZ}.zip"


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise CommandError(
            f"--ops {address}: expected HOST:PORT", hint="--ops 10.0.0.1:9392", code=ExitCode.USAGE
        )


def _settings_in_force() -> list[dict[str, str | None]]:
    return [{"setting": name, **settings.look_up(name)._asdict()} for name in settings.SETTINGS]
