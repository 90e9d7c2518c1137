"""Output of commands: a result on stdout as a table, JSON or YAML, everything else on stderr."""

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer._click.core import ParameterSource

from tidemark.cli import settings
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.progress import Progress

_COLUMN_GAP: Final = 2


class OutputFormat(StrEnum):
    """Format of a command's result."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_table(self) -> bool:
        """True for a format for people: a table with the usual columns, or with all."""
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)


def _chosen_output(ctx: typer.Context, value: OutputFormat) -> OutputFormat:
    """Return the option's value, or the setting's without an option."""
    if ctx.resilient_parsing or ctx.get_parameter_source("output") is not ParameterSource.DEFAULT:
        return value
    return OutputFormat(settings.look_up("output").value or value)


OutputOption = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        callback=_chosen_output,
        help="table, or wide with every column, for people; json or yaml for programs.",
    ),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        help="Addresses of some brokers; default: the setting bootstrap.",
    ),
]
GrpcBootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        help="gRPC addresses of brokers; default: the setting grpc-bootstrap.",
    ),
]
RestOption = Annotated[
    str | None,
    typer.Option(
        "--rest",
        metavar="HOST:PORT,...",
        help="REST addresses of controllers; default: the setting rest.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class TransportChoice(StrEnum):
    """Transport of records."""

    KAFKA = "kafka"
    GRPC = "grpc"


TransportOption = Annotated[
    TransportChoice,
    typer.Option("--transport", help="kafka, or grpc (then --bootstrap names gRPC addresses)."),
]


def bootstrap_for(bootstrap: str | None, transport: TransportChoice = TransportChoice.KAFKA) -> str:
    """Return the given addresses, or those of the settings. Raises CommandError."""
    if bootstrap is not None:
        return bootstrap
    return settings.address("grpc-bootstrap" if transport is TransportChoice.GRPC else "bootstrap")


Row = Mapping[str, object]


def print_rows(
    rows: Sequence[Row], columns: Sequence[str], output: OutputFormat, *, title: str = ""
) -> None:
    """Print rows: as a table with these columns under a title, wide with the other plain fields
    too, or as a document with all fields.
    """
    if not output.is_table:
        print_document(list(rows), output)
        return
    shown = [*columns, *_further_columns(rows, columns)] if output is OutputFormat.WIDE else columns
    sys.stdout.write((f"{title}\n" if title else "") + as_table(rows, shown))


@contextmanager
def printing_rows(
    rows: Sequence[Row], columns: Sequence[str], output: OutputFormat
) -> Iterator[None]:
    """Print the rows that the block fills, also if it fails after some: they are done."""
    try:
        yield
    finally:
        if rows:
            print_rows(rows, columns, output)


def print_document(value: object, output: OutputFormat) -> None:
    """Print one document on stdout: YAML, or JSON."""
    sys.stdout.write(document_text(value, output))


def document_text(value: object, output: OutputFormat) -> str:
    """Return one document: YAML, or JSON."""
    if output is not OutputFormat.YAML:
        return json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n"
    import yaml  # type: ignore[import-untyped]  # one format of four needs it

    plain = json.loads(json.dumps(value, default=str))
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, explicit_start=True)
    return text


def print_line_document(value: object, output: OutputFormat) -> None:
    """Print one document of a stream: a line of JSON, or a YAML document."""
    if output is OutputFormat.YAML:
        print_document(value, output)
    else:
        sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def as_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return aligned lines under a head; numbers are right-aligned.

    The terminal wraps what is wider than it is, so that nothing is cut.
    """
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    heads = [column.replace("_", " ").upper() for column in columns]
    numeric = [
        bool(rows) and all(_is_number(row.get(column)) for row in rows) for column in columns
    ]
    widths = [max(_width(line[place]) for line in [heads, *cells]) for place in range(len(columns))]
    return "".join(_line(line, widths, numeric) for line in [heads, *cells])


def _line(line: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = []
    for text, width, right in zip(line, widths, numeric, strict=True):
        space = " " * (width - _width(text))
        padded.append(space + text if right else text + space)
    return (" " * _COLUMN_GAP).join(padded).rstrip() + "\n"


def _width(text: str) -> int:
    """Return the number of columns that a terminal gives the text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _further_columns(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Return the other fields that fit into a cell, in the order of the rows."""
    further: dict[str, None] = {}
    for row in rows:
        for name, value in row.items():
            nested = isinstance(value, list | tuple) and any(
                isinstance(item, Mapping) for item in value
            )
            if name not in columns and not nested:
                further[name] = None
    return list(further)


def say(text: str) -> None:
    """Print a line for the user on stderr."""
    sys.stderr.write(f"{text}\n")


def confirm(question: str, *, yes: bool) -> None:
    """Return if ``yes``, or if the user agrees on the terminal.

    Without a terminal nothing is destroyed unless ``yes``. Raises CommandError, typer.Abort.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            f"not confirmed: {question}",
            hint="there is no terminal to answer on; pass --yes if that is what you want",
            code=ExitCode.USAGE,
        )
    typer.confirm(question, abort=True, err=True)


def progress_bar(*, shown: bool = True) -> "Progress":
    """Return a progress bar with count, rate and time left on stderr, only on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar up to ``total``; the yielded function takes the count so far."""
    if not sys.stderr.isatty():
        yield lambda completed: None
        return
    with progress_bar() as bar:
        task = bar.add_task(title, total=total)
        yield lambda completed: bar.update(task, completed=completed)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _printable(" ".join(f"{name}={item}" for name, item in value.items())) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _printable(",".join(str(item) for item in value)) or "-"
    return _printable(str(value))


def _printable(text: str) -> str:
    """Escape control characters: a client's id must not move the cursor of an operator."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
