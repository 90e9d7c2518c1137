"""Formats of ``topic consume``: records as lines, and the position at which to start."""

import base64
import json
import re
import string
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.cli.output import OutputFormat, document_text
from tidemark.cli.times import parse_ms
from tidemark.cli.topic.percent_format import as_bytes, compile_format
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.codec.varint import INT64_MAX
from tidemark.runtime.exit_codes import ExitCode

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
Printer = Callable[[ConsumerRecord], bytes]
"""Function from a record to the bytes that are printed for it."""
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}


class StartAt(NamedTuple):
    """Position to start at. ``kind`` is earliest, latest, offset or timestamp; the latter two use
    ``number``.
    """

    kind: str
    number: int = 0


def parse_start(text: str, option: str = "--from") -> StartAt:
    """Read ``earliest``, ``latest``, an offset, ``@`` and milliseconds, or an ISO 8601 time.

    A time without a zone is UTC. Raises CommandError.
    """
    if text in ("earliest", "latest"):
        return StartAt(text)
    if re.fullmatch(r"\d+", text) and int(text) <= INT64_MAX:
        return StartAt("offset", int(text))
    try:
        return StartAt("timestamp", parse_ms(text))
    except ValueError:
        raise CommandError(
            f"{option} {text!r} is not a position in a log",
            hint="earliest, latest, an offset (42), @milliseconds, or a time from 1970 on"
            " (2026-03-01T12:00:00)",
            code=ExitCode.USAGE,
        ) from None


def check_format(template: str, fields: Sequence[str] = FIELDS) -> str:
    """Replace escapes (``\\t``) in a template. Raises CommandError for unknown fields."""
    text = re.sub(r"\\[tn0\\]", lambda match: _ESCAPES[match[0]], template)
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        unknown = next((name for name in names if name not in fields), None)
    except ValueError as error:
        raise CommandError(f"--format {template!r}: {error}", code=ExitCode.USAGE) from None
    if unknown is not None:
        raise CommandError(
            f"--format {template!r}: there is no field {unknown!r}",
            hint="fields are: " + ", ".join(f"{{{name}}}" for name in fields),
            code=ExitCode.USAGE,
        )
    return text


def as_line(record: ConsumerRecord, template: str, **more: object) -> str:
    """Format one record with a template of ``check_format``; ``more`` are further fields."""
    return template.format(
        **more,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        time=_iso(record.timestamp_ms),
        key=_text(record.key),
        value=_text(record.value),
        headers=",".join(f"{name}={_text(value)}" for name, value in record.headers),
    )


def printer_for(text: str, output: OutputFormat) -> Printer:
    """Return the function that formats records: ``-o json`` and ``yaml`` come first, then the
    format ``json``, fields in braces on lines, or fields with percent signs. Raises CommandError.
    """
    if output is OutputFormat.YAML:
        return lambda record: document_text(as_document(record), output).encode()
    if not output.is_table or text == "json":
        return lambda record: as_json(record).encode() + b"\n"
    if "%" not in text:
        template = check_format(text)
        return lambda record: as_line(record, template).encode("utf-8", "replace") + b"\n"
    parts = compile_format(text)
    return lambda record: as_bytes(record, parts)


def as_json(record: ConsumerRecord, **more: object) -> str:
    """Format one record as a line of JSON."""
    return json.dumps(as_document(record, **more), ensure_ascii=False)


def as_document(record: ConsumerRecord, **more: object) -> dict[str, object]:
    """Return the fields of a record; bytes that are not UTF-8 are base64, ``..._base64``. ``more``
    are further fields.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [
            {"name": name, **_json_bytes("value", value)} for name, value in record.headers
        ],
        **more,
    }


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _text(data: bytes | None) -> str:
    return "" if data is None else bytes(data).decode("utf-8", "backslashreplace")


def _iso(timestamp_ms: int) -> str:
    """Return a date in UTC; the number itself if there is no such date."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1_000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
