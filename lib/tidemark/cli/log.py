"""``tidemark log``: commands that read the files of a broker."""

from tidemark.cli.apps import command_group
from tidemark.cli.log_dump import dump_segment

app = command_group("Read the files of a broker.")
app.command("dump")(dump_segment)


@app.callback()
def log() -> None:
    """Read the files of a broker."""
