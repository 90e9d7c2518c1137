"""Output of commands: a table or JSON on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_WIDTH_WHEN_PIPED: Final = 200


class OutputFormat(StrEnum):
    """Format of a command's result."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="table for people, json for programs.")
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="TIDEMARK_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Addresses of some brokers; default: the development cluster's.",
    ),
]
GrpcBootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="TIDEMARK_GRPC_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="gRPC addresses of brokers; default: the development cluster's.",
    ),
]
_DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_DEFAULT_GRPC_BOOTSTRAP: Final = "127.0.0.1:9292"


class TransportChoice(StrEnum):
    """Transport of records."""

    KAFKA = "kafka"
    GRPC = "grpc"


TransportOption = Annotated[
    TransportChoice,
    typer.Option("--transport", help="kafka, or grpc (then --bootstrap names gRPC addresses)."),
]


def bootstrap_for(bootstrap: str | None, transport: TransportChoice = TransportChoice.KAFKA) -> str:
    """Return the given addresses, or those of an embedded cluster."""
    if bootstrap is not None:
        return bootstrap
    return _DEFAULT_GRPC_BOOTSTRAP if transport is TransportChoice.GRPC else _DEFAULT_BOOTSTRAP


Row = Mapping[str, object]


def print_rows(
    rows: Sequence[Row], columns: Sequence[str], output: OutputFormat, *, title: str = ""
) -> None:
    """Print rows as a table with these columns, or as JSON with all fields."""
    if output is OutputFormat.JSON:
        print_json(list(rows))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for column in columns:
        numeric = bool(rows) and all(_is_number(row.get(column)) for row in rows)
        table.add_column(
            column.replace("_", " ").upper(),
            justify="right" if numeric else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    stdout_console().print(table)


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def say(text: str) -> None:
    """Print a line for the user on stderr."""
    sys.stderr.write(f"{text}\n")


def stdout_console() -> "Console":
    """Return a console for tables: as wide as the terminal, or _WIDTH_WHEN_PIPED."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_WHEN_PIPED
    return Console(width=width, highlight=False, markup=False, emoji=False)


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
        return " ".join(f"{name}={item}" for name, item in value.items()) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
