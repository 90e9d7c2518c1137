"""``tidemark log``: commands that read the files of a broker."""

import typer

from tidemark.cli.log_dump import dump_segment

app = typer.Typer(no_args_is_help=True, help="Read the files of a broker.")
app.command("dump")(dump_segment)


@app.callback()
def log() -> None:
    """Read the files of a broker."""
