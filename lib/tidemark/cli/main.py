"""``tidemark``: the command line.

Commands import their dependencies when run, so that the command line starts fast.
"""

import sys
from typing import Annotated

import typer

from tidemark.cli.cluster.commands import app as cluster_app
from tidemark.cli.dev.faults import app as dev_app
from tidemark.cli.failure import CommandError
from tidemark.cli.group.commands import app as group_app
from tidemark.cli.share.commands import app as share_app
from tidemark.cli.topic.commands import app as topic_app
from tidemark.cli.txn.commands import app as txn_app
from tidemark.runtime.exit_codes import ExitCode

_EPILOG = (
    "Exit codes: 0 done; 1 negative result (it exists already, it is not healthy); 64 wrong"
    " arguments; 65 unreadable input; 66 no such input; 69 a server or tool is not there;"
    " 70 a bug; 75 out of time, try again; 77 not allowed; 130 interrupted."
)
_CLICK_USAGE = 2

app = typer.Typer(
    name="tidemark",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tidemark: a distributed, replicated log that speaks Kafka's protocol.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(dev_app, name="dev")
app.add_typer(topic_app, name="topic")
app.add_typer(cluster_app, name="cluster")
app.add_typer(group_app, name="group")
app.add_typer(share_app, name="share")
app.add_typer(txn_app, name="txn")


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
    if sys.argv[1:2] not in (["dev"], ["topic"], ["group"], ["share"], ["txn"]):
        # It decodes every file format; other commands start faster without it.
        from tidemark.cli.log import app as log_app

        app.add_typer(log_app, name="log")
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
