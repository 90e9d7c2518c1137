"""Calls of ``tidemark debug log-level``: log levels of running processes, by their HTTP ports."""

import http.client
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tidemark.cli.debug.http_page import ask
from tidemark.cli.dev.layout import Layout, Shape
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

EVERY_LOGGER: Final = ""
PAGE: Final = "/loglevel"
_CODES: Final = {
    http.client.BAD_REQUEST: ExitCode.USAGE,
    http.client.UNAUTHORIZED: ExitCode.NO_PERMISSION,
    http.client.FORBIDDEN: ExitCode.NO_PERMISSION,
}
_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024

Row = dict[str, Any]


def embedded_processes(directory: Path | None, names: Iterable[str]) -> dict[str, str]:
    """Return the HTTP addresses of the processes of an embedded cluster, of ``names`` or of all.
    Raises CommandError for a name that is not one of them.
    """
    shape = None if directory is None else Shape.read(directory / "cluster.json")
    found: dict[str, str] = {}
    if directory is not None and shape is not None:
        layout = Layout(directory, shape)
        for member in layout.members():
            address = layout.http_address(member)
            if address is not None:
                found[member.name] = address
    wanted = list(names)
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise CommandError(
            f"no process named {unknown[0]!r} in an embedded cluster",
            hint="--ops HOST:PORT names a process by its address"
            + (f"; --process is one of: {', '.join(found)}" if found else ""),
            code=ExitCode.USAGE,
        )
    return {name: found[name] for name in wanted} if wanted else found


def levels(processes: Mapping[str, str], *, logger: str | None) -> list[Row]:
    """Return a row for each logger with a level of its own, of every process; of ``logger`` alone
    if it is given. Raises CommandError.
    """
    return [
        row
        for name, address in processes.items()
        for row in rows_of(name, _ask(address, "GET", b""))
        if logger is None or row["logger"] == logger
    ]


def set_levels(processes: Mapping[str, str], level: str, *, logger: str) -> list[Row]:
    """Set the level of a logger and those below it ('': of all) in every process, and return a row
    for each. Raises CommandError.
    """
    body = json.dumps({"level": level, "logger": logger}).encode()
    found = [rows_of(name, _ask(address, "PUT", body)) for name, address in processes.items()]
    return [row for rows in found for row in rows if row["logger"] == logger]


def rows_of(process: str, answer: Mapping[str, Any]) -> list[Row]:
    """Return the rows of one process: all loggers first, as ''. Pure."""
    every = {EVERY_LOGGER: answer["level"], **dict(sorted(answer["loggers"].items()))}
    return [
        {"process": process, "logger": logger, "level": level} for logger, level in every.items()
    ]


def _ask(address: str, method: str, body: bytes) -> dict[str, Any]:
    try:
        answer = ask(address, method, PAGE, body, bytes_max=_ANSWER_BYTES_MAX, timeout_s=_TIMEOUT_S)
    except (OSError, http.client.HTTPException) as problem:
        raise CommandError(
            f"log levels not {'changed' if method == 'PUT' else 'read'}: {problem}",
            address=address,
            api=f"{method} {PAGE}",
            hint="check that the process runs; the address is its ops.listen or rest.listen",
            code=ExitCode.UNAVAILABLE,
        ) from None
    text = answer.body.decode("utf-8", "replace").strip()
    if answer.status != http.client.OK:
        code = _CODES.get(answer.status, ExitCode.FAILED)
        raise CommandError(text, address=address, api=f"{method} {PAGE}", code=code)
    return _read(text, address)


def _read(text: str, address: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and found.keys() >= {"level", "loggers"}:
        return found
    raise CommandError(
        "this address does not serve the log levels of a Tidemark process",
        address=address,
        api=f"GET {PAGE}",
        code=ExitCode.UNAVAILABLE,
    )
