"""``tidemark``: the command line.

A group of commands is imported when it is used, and a command imports its work when it is run, so
that the command line starts fast.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from tidemark.cli.apps import HELP_OPTIONS, GroupPlace, LazyGroups
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

GROUPS: Final[Mapping[str, GroupPlace]] = {
    "dev": GroupPlace("tidemark.cli.dev.faults", "Run a development cluster on this machine."),
    "topic": GroupPlace(
        "tidemark.cli.topic.commands", "Create, describe, change, write and read topics."
    ),
    "cluster": GroupPlace(
        "tidemark.cli.cluster.commands",
        "Show brokers and health, elect leaders, move replicas.",
    ),
    "group": GroupPlace(
        "tidemark.cli.group.commands", "List, describe, reset and delete consumer groups."
    ),
    "share": GroupPlace(
        "tidemark.cli.share.commands", "List, describe, consume and reset share groups."
    ),
    "txn": GroupPlace("tidemark.cli.txn.commands", "List, describe and end transactions."),
    "log": GroupPlace("tidemark.cli.log", "Read the files of a broker."),
}
_EPILOG = (
    "Exit codes: 0 done; 1 negative result (it exists already, it is not healthy); 64 wrong"
    " arguments; 65 unreadable input; 66 no such input; 69 a server or tool is not there;"
    " 70 a bug; 75 out of time, try again; 77 not allowed; 130 interrupted."
)
_CLICK_USAGE = 2


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

        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the release and exit."
        ),
    ] = False,
) -> None:
    """Tidemark: a distributed, replicated log that speaks Kafka's protocol."""


def main() -> None:
    """Run one command and exit with its documented code."""
    try:
        app()
    except SystemExit as ending:
        sys.exit(ExitCode.USAGE if ending.code == _CLICK_USAGE else ending.code)
    except CommandError as error:
        sys.stderr.write(f"error: {error.what}\n")
        if error.hint:
            sys.stderr.write(f"  try: {error.hint}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of the output (head, less) has closed it.
        sys.stderr.close()
        sys.exit(ExitCode.OK)


if __name__ == "__main__":
    main()
