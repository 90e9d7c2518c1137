"""``tidemark``: the command line.

A group of commands is imported when it is used, and a command imports its work when it is run, so
that the command line starts fast.
"""

import io
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from typer._click.exceptions import ClickException

from tidemark.cli import settings
from tidemark.cli.apps import HELP_OPTIONS, ClosedOutputError, GroupPlace, LazyGroups
from tidemark.cli.failure import CommandError, is_of_a_write
from tidemark.runtime.exit_codes import ExitCode

GROUPS: Final[Mapping[str, GroupPlace]] = {
    "dev": GroupPlace("tidemark.cli.dev.faults", "Run a development cluster on this machine."),
    "topic": GroupPlace(
        "tidemark.cli.topic.data_commands", "Create, describe, change, write and read topics."
    ),
    "cluster": GroupPlace(
        "tidemark.cli.cluster.rest_commands",
        "Show brokers and health, elect leaders, move replicas, drain brokers.",
    ),
    "operations": GroupPlace(
        "tidemark.cli.operations.commands",
        "List, show and cancel long actions: moves, drains, decommissions.",
    ),
    "events": GroupPlace(
        "tidemark.cli.events.commands",
        "List and watch what changes: leaders, ISRs, brokers, topics, settings.",
    ),
    "group": GroupPlace(
        "tidemark.cli.group.rest_commands", "List, describe, reset and delete consumer groups."
    ),
    "share": GroupPlace(
        "tidemark.cli.share.rest_commands", "List, describe, consume and reset share groups."
    ),
    "config": GroupPlace(
        "tidemark.cli.config.commands",
        "Show and change settings of topics, brokers, groups and client metrics.",
    ),
    "user": GroupPlace(
        "tidemark.cli.user.commands", "List, add and remove users that log in with SCRAM."
    ),
    "quota": GroupPlace("tidemark.cli.quota.commands", "List, set and remove quotas of clients."),
    "acl": GroupPlace(
        "tidemark.cli.acl.commands", "List, add, remove and check access control lists."
    ),
    "producers": GroupPlace(
        "tidemark.cli.txn.producer_commands",
        "Show the producers of partitions: epochs, sequences, open transactions.",
    ),
    "txn": GroupPlace("tidemark.cli.txn.commands", "List, describe and end transactions."),
    "k8s": GroupPlace(
        "tidemark.cli.k8s.commands",
        "Show a release of the Helm chart, restart its pods, replace a lost node.",
    ),
    "debug": GroupPlace(
        "tidemark.cli.debug.commands",
        "Collect what a diagnosis needs, show slow requests, and set log levels.",
    ),
    "log": GroupPlace("tidemark.cli.log", "Read the files of a broker."),
    "profile": GroupPlace(
        "tidemark.cli.profile_commands", "Create, choose and show profiles: named settings."
    ),
}
_EPILOG = (
    "-X and --profile may also follow the command. Exit codes: 0 done; 1 negative result (it exists"
    " already, it is not healthy); 64 wrong arguments; 65 unreadable input; 66 no such input; 69 a"
    " server or tool is not there; 70 a bug; 74 a file cannot be read or written; 75 out of time,"
    " try again; 77 not allowed; 130 interrupted."
)
_PAIR: Final = re.compile(r"[a-z][a-z.-]*=")
_HOISTED: Final = ("-X", "--profile")
"""Options of the root that may also follow a command."""


class _Root(LazyGroups):
    places = GROUPS


app = typer.Typer(
    name="tidemark",
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Tidemark: a distributed, replicated log that speaks Kafka's protocol.",
    epilog=_EPILOG,
    context_settings=HELP_OPTIONS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from tidemark.runtime.build import build_text

        typer.echo(f"tidemark {version('tidemark')} ({build_text()})")
        raise typer.Exit


@app.callback()
def root(
    given: Annotated[
        list[str] | None,
        typer.Option(
            "-X", metavar="KEY=VALUE", help="A setting, see `tidemark profile show`; repeatable."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Profile of this command.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the release and exit."
        ),
    ] = False,
) -> None:
    """Tidemark: a distributed, replicated log that speaks Kafka's protocol."""
    settings.begin(given or (), profile)


def hoisted(words: Sequence[str]) -> list[str]:
    """Return the words with ``-X KEY=VALUE`` and ``--profile NAME`` moved before the command.

    A ``-X`` is moved only if a pair follows, and nothing is moved from behind ``--``.
    """
    first: list[str] = []
    rest = list(words)
    place = 0
    while place < len(rest) - 1 and rest[place] != "--":
        option, value = rest[place], rest[place + 1]
        if option in _HOISTED and (option != "-X" or _PAIR.match(value)):
            first += rest[place : place + 2]
            del rest[place : place + 2]
        else:
            place += 1
    return first + rest


def run(words: Sequence[str]) -> int:
    """Run one command; return its exit code. Every failure becomes a message on stderr."""
    command = typer.main.get_command(app)
    try:
        _check_text(words)
        code = command.main(hoisted(words), prog_name="tidemark", standalone_mode=False)
        sys.stdout.flush()
    except ClickException as error:
        error.show()
        return ExitCode.USAGE
    except typer.Abort:
        sys.stderr.write("aborted; nothing was changed\n")
        return ExitCode.FAILED
    except CommandError as error:
        sys.stderr.write("\n".join(error.lines()) + "\n")
        return error.exit_code
    except (BrokenPipeError, ClosedOutputError):
        _drop_output()  # its reader (head, less) has closed it
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the outermost frame
        return _ended_by(error)
    finally:
        settings.begin((), None)  # -X and --profile end with their command
    if code == ExitCode.INTERRUPTED:
        sys.stderr.write("interrupted\n")
    return code or ExitCode.OK


def _ended_by(error: Exception) -> ExitCode:
    """Report what no command expects: an output that is full, or a bug with its traceback."""
    if isinstance(error, OSError) and is_of_a_write(error):
        _drop_output()
        place = error.filename or "the output"
        sys.stderr.write(f"error: cannot write {place}: {error.strerror}\n")
        return ExitCode.IO
    sys.stderr.write(traceback.format_exc())
    sys.stderr.write("error: this is a bug of tidemark\n  try: report the lines above\n")
    return ExitCode.INTERNAL


def _drop_output() -> None:
    """Let what is still buffered go nowhere: the end of the process would try it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_text(words: Sequence[str]) -> None:
    """Raise CommandError for an argument that is not UTF-8: names and values are text."""
    for number, word in enumerate(words, 1):
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise CommandError(
                f"argument {number} is not UTF-8",
                hint="names and values are text; records with other bytes can come from a file",
                code=ExitCode.USAGE,
            )


def main() -> None:
    """Run the command of this process and exit with its documented code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started it (`>&-`)
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - kept open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that is not UTF-8 shows escapes instead of ending the command.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
