"""``tidemark dev kill|pause|resume|restart``: faults of processes, on request."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.arguments import seconds
from tidemark.cli.dev.commands import DirectoryOption, existing
from tidemark.cli.dev.commands import app as app
from tidemark.cli.dev.process import pause_process
from tidemark.cli.failure import CommandError
from tidemark.cli.output import OutputFormat, OutputOption, print_document, say

if TYPE_CHECKING:
    from tidemark.cli.dev.cluster import DevCluster

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="BROKER",
        help="2 or broker-2; also controller-1, txn-coordinator-1, share-coordinator-1, zookeeper.",
    ),
]


@app.command()
def kill(
    name: NameArgument,
    directory: DirectoryOption = Path(".tidemark"),
    *,
    power: Annotated[
        bool, typer.Option("--power", help="Kill its supervisor too, as a power loss would.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """End a process with SIGKILL, as a crash would."""
    cluster, member = _running(directory, name)
    if power:
        cluster.cut_power(member)
    else:
        cluster.kill(member)
    _report("killed", member, output)


@app.command()
def pause(
    name: NameArgument,
    directory: DirectoryOption = Path(".tidemark"),
    *,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Pause a process with SIGSTOP."""
    cluster, member = _running(directory, name)
    try:
        pause_process(cluster.pid(member))
    except TimeoutError as problem:
        raise CommandError(str(problem), hint="try again, or: tidemark dev kill") from None
    _report("paused", member, output)


@app.command()
def resume(
    name: NameArgument,
    directory: DirectoryOption = Path(".tidemark"),
    *,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Continue a paused process."""
    cluster, member = _running(directory, name)
    os.kill(cluster.pid(member), signal.SIGCONT)
    _report("resumed", member, output)


@app.command()
def restart(
    name: NameArgument,
    directory: DirectoryOption = Path(".tidemark"),
    *,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", callback=seconds, help="Seconds to wait until the cluster is healthy."
        ),
    ] = 60.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Restart a process and wait until it is ready; stop it first if it is running."""
    cluster = _cluster(directory)
    member = cluster.layout.member(_full(name)).name
    if member in cluster.running():
        os.kill(cluster.pid(member), signal.SIGCONT)  # a paused process does not act on SIGTERM
    cluster.restart(member, timeout)
    _report("restarted", member, output)


def _cluster(directory: Path) -> "DevCluster":
    cluster = existing(directory)
    if cluster is None:
        raise CommandError(
            f"there is no cluster in {directory}", hint="tidemark dev up creates one"
        )
    return cluster


def _running(directory: Path, name: str) -> tuple["DevCluster", str]:
    cluster = _cluster(directory)
    member = cluster.layout.member(_full(name)).name
    cluster.pid(member)
    return cluster, member


def _full(name: str) -> str:
    """Return the full name of a process: a number is a broker's id."""
    return f"broker-{name}" if name.isdecimal() else name


def _report(done: str, member: str, output: OutputFormat) -> None:
    if not output.is_table:
        print_document({done: member}, output)
    else:
        say(f"{done} {member}")
