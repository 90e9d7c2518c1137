"""``tidemark dev``: an embedded cluster on loopback, for development."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import seconds
from tidemark.cli.failure import CommandError
from tidemark.cli.output import OutputFormat, OutputOption, print_document, print_rows, say
from tidemark.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from tidemark.cli.dev.cluster import DevCluster
    from tidemark.cli.dev.layout import Layout, Shape

app = command_group("Run a development cluster on this machine.")

DirectoryOption = Annotated[
    Path,
    typer.Option("--dir", envvar="TIDEMARK_DIR", help="Directory of data, logs and process files."),
]

FirstBrokerIdOption = Annotated[
    int | None,
    typer.Option(
        "--first-broker-id", help="Id of the first broker; the next has one more. Default 1."
    ),
]

PortOption = Annotated[
    list[str] | None,
    typer.Option(
        "--port",
        metavar="KIND=PORT",
        help="Move one kind: zookeeper, controller_grpc, rest, client, internal, grpc, ops,"
        " txn_grpc, txn_ops, share_grpc, share_ops, prometheus, mutual or grpc_client. The first of"
        " consecutive ports; may be repeated.",
    ),
]


@app.command()
def up(
    directory: DirectoryOption = Path(".tidemark"),
    *,
    brokers: Annotated[int | None, typer.Option("--brokers", "-n", help="Default 3.")] = None,
    first_broker_id: FirstBrokerIdOption = None,
    controllers: Annotated[int | None, typer.Option("--controllers", help="Default 2.")] = None,
    txn_coordinators: Annotated[
        int | None,
        typer.Option("--txn-coordinators", help="Default 1 where that service is installed."),
    ] = None,
    share_coordinators: Annotated[
        int | None,
        typer.Option("--share-coordinators", help="Default 1 where that service is installed."),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option("--base-port", help="First port; all ports are within the next 140."),
    ] = None,
    port: PortOption = None,
    metrics: Annotated[
        bool | None,
        typer.Option(
            "--metrics/--no-metrics", help="Run Prometheus too, if it is installed. Default no."
        ),
    ] = None,
    supervisors: Annotated[
        bool | None,
        typer.Option(
            "--supervisors/--no-supervisors",
            help="Start each service under a supervisor, which records a crash. Default yes.",
        ),
    ] = None,
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure",
            help="Clients log in over TLS, and ACLs decide what they may do. A secure cluster"
            " stays secure, with the same users and certificates.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", callback=seconds, help="Seconds to wait until the cluster is healthy."
        ),
    ] = 60.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Start the cluster, or its processes that are not running, and wait until it is healthy."""
    from tidemark.cli.dev.cluster import DevCluster
    from tidemark.cli.dev.layout import Layout, Shape

    kept = Shape.read(Layout(directory).shape_path)
    asked = {
        "brokers": brokers,
        "first_broker_id": first_broker_id,
        "controllers": controllers,
        "txn_coordinators": txn_coordinators,
        "share_coordinators": share_coordinators,
    }
    switches = {
        "has_prometheus": metrics,
        "has_supervisors": supervisors,
        "is_secure": secure,
    }
    shape = _wanted_shape(kept, {**asked, **switches}, base_port, _read_ports(port or []))
    if kept is not None:
        _check_change(Layout(directory, kept), shape)
    cluster = DevCluster(Layout(directory, shape), report=say)
    _print_started(cluster.start(timeout), cluster, output)


def _print_started(started: list[str], cluster: "DevCluster", output: OutputFormat) -> None:
    """Print what was started, the addresses, and for a secure cluster what clients need."""
    from tidemark.cli.dev.secure import NOTE, client_uses

    is_secure = cluster.layout.shape.is_secure
    addresses = _addresses(cluster.layout)
    uses = client_uses(cluster.layout) if is_secure else {}
    if not output.is_table:
        clients = {"clients": uses} if is_secure else {}
        print_document({"started": started, **addresses, **clients}, output)
        return
    say(_outcome(started, cluster))
    if is_secure:
        say(NOTE)
    for name, text in {**addresses, **uses}.items():
        typer.echo(f"{name:<11}{text}")


@app.command()
def down(
    directory: DirectoryOption = Path(".tidemark"),
    *,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", callback=seconds, help="Seconds to wait for a clean stop before a kill."
        ),
    ] = 30.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Stop the cluster cleanly; its data stays."""
    cluster = existing(directory)
    stopped = cluster.running() if cluster is not None else []
    killed = cluster.stop(timeout) if cluster is not None else []
    if not output.is_table:
        print_document({"stopped": stopped, "killed": killed}, output)
    else:
        say(f"stopped {', '.join(stopped)}" if stopped else f"nothing is running in {directory}")
    if killed:
        raise CommandError(
            f"killed {', '.join(killed)}: not stopped within {timeout:g} s",
            hint=f"see the logs in {directory / 'logs'}",
        )


@app.command()
def status(
    directory: DirectoryOption = Path(".tidemark"), *, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show every process. Exit code 0 if all are healthy, 1 if not."""
    cluster = existing(directory)
    if cluster is None:
        raise CommandError(
            f"there is no cluster in {directory}", hint="tidemark dev up creates one"
        )
    members = cluster.status()
    rows = [
        {
            "name": member.name,
            "health": member.health,
            "pid": member.pid if member.running else None,
            "uptime": _duration(member.uptime_ms),
            "uptime_ms": member.uptime_ms,
            "ports": dict(member.ports),
            "problem": member.problem,
            "log": member.log_path,
            "secure": cluster.layout.shape.is_secure,
        }
        for member in members
    ]
    print_rows(rows, ("name", "health", "pid", "uptime", "ports", "log"), output)
    if output.is_table:
        if cluster.layout.shape.is_secure:
            from tidemark.cli.dev.secure import NOTE

            say(NOTE)
        for member in members:
            if member.running and member.problem is not None:
                say(f"{member.name}: {member.problem}")
    if any(member.health != "healthy" for member in members):
        raise typer.Exit(1)


def existing(directory: Path) -> "DevCluster | None":
    """Return the cluster that an earlier ``up`` created there, if any."""
    from tidemark.cli.dev.cluster import DevCluster
    from tidemark.cli.dev.layout import Layout, Shape

    shape = Shape.read(Layout(directory).shape_path)
    return None if shape is None else DevCluster(Layout(directory, shape), report=say)


def _read_ports(changes: list[str]) -> dict[str, int]:
    found = {}
    for change in changes:
        kind, _, number = change.partition("=")
        if not number.isdecimal() or not 0 < int(number) < 65_536:
            raise typer.BadParameter(f"--port {change}: expected KIND=PORT, as client=19092")
        found[kind.replace("-", "_")] = int(number)
    return found


def _wanted_shape(
    kept: "Shape | None",
    asked: Mapping[str, int | None],
    base_port: int | None,
    ports: dict[str, int],
) -> "Shape":
    """Return the shape with the given options, else the stored ones, else the defaults."""
    from tidemark.cli.dev.layout import Ports, Shape

    shape = kept or Shape.default()
    base = shape.ports if base_port is None else Ports.from_base(base_port)
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return replace(shape, ports=base.changed(ports), **given)


def _check_change(kept: "Layout", shape: "Shape") -> None:
    """Raise CommandError if the cluster cannot take another shape, or has to be stopped for it."""
    from tidemark.cli.dev.cluster import DevCluster

    _refuse_other_ids(kept, shape)
    # Prometheus can be added to a cluster that runs; everything else takes a restart.
    unchanged = replace(shape, has_prometheus=kept.shape.has_prometheus)
    removed = kept.shape.has_prometheus and not shape.has_prometheus
    if unchanged != kept.shape or removed:
        _refuse_while_running(DevCluster(kept))


def _refuse_while_running(cluster: "DevCluster") -> None:
    if cluster.running():
        raise CommandError(
            f"a cluster with other options is running in {cluster.layout.directory}",
            hint="tidemark dev down first; its data stays",
        )


def _refuse_other_ids(kept: "Layout", shape: "Shape") -> None:
    """Raise CommandError if brokers would change their ids, with which their data are marked."""
    has_data = (kept.directory / "data").exists()
    if has_data and shape.first_broker_id != kept.shape.first_broker_id:
        raise CommandError(
            f"the brokers in {kept.directory} have ids from {kept.shape.first_broker_id}, and keep"
            " them with their data",
            hint="choose another --dir, or stop the cluster and remove the directory",
            code=ExitCode.USAGE,
        )


def _outcome(started: list[str], cluster: "DevCluster") -> str:
    if not started:
        return "the cluster is already running and healthy"
    if len(started) == len(cluster.layout.members()):
        return "the cluster is up"
    return f"part of the cluster was running; started {', '.join(started)}"


def _addresses(layout: "Layout") -> dict[str, str]:
    from tidemark.cli.dev.layout import HOST

    ports = layout.shape.ports
    rest = f"{'https' if layout.shape.is_secure else 'http'}://{HOST}:{ports.rest}"
    web = {"prometheus": f"http://{HOST}:{ports.prometheus}"} if layout.shape.has_prometheus else {}
    return {
        "bootstrap": layout.bootstrap,
        "grpc": layout.grpc_for_clients,
        "rest": rest,
        "console": f"{rest}/",
        **web,
        "zookeeper": layout.zookeeper_connect,
        "directory": str(layout.directory),
    }


def _duration(duration_ms: int | None) -> str | None:
    if duration_ms is None:
        return None
    seconds = duration_ms // 1_000
    hours, minutes = seconds // 3_600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds % 60:02d}s" if minutes else f"{seconds}s"
