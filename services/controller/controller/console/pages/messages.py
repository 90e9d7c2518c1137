"""Messages of a topic: seek, filter, live tail, download, and a form that writes one record."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast, get_args

from starlette.responses import Response

from controller.admin import messages, topics
from controller.admin.errors import AdminError, bad_value
from controller.admin.messages import Messages, MessagesQuery, NewRecord, Seek, SeekKind
from controller.admin.records import Search, SearchField, StoredRecord
from controller.console.formats import FORMATS, Format
from controller.console.forms import Form
from controller.console.names import command
from controller.console.visit import NotFoundError, Visit

_LIMITS: Final = (20, 50, 100, 500)
_TEXT_MAX: Final = 1_000
_DIGITS_MAX: Final = 19
"""A number of so many digits may not fit 64 bits."""
SEEKS: Final[Mapping[str, str]] = {
    "latest": "Newest",
    "earliest": "Oldest",
    "offset": "From offset",
    "timestamp": "From time (UTC)",
    "tail": "Live tail",
}


async def show(visit: Visit, name: str) -> Response:
    """Show records of a topic."""
    topic = await topics.get_topic(visit.admin, name)
    asked = visit.query
    mode = asked.get("from", "latest")
    found: Messages | None = None
    problem, status = "", 200
    try:
        query = _query(asked)
        if mode == "tail":
            query = replace(query, seek=Seek("latest"), limit=10)
        found = await messages.read(visit.admin, name, query)
    except AdminError as error:
        problem, status = error.message, error.status
    return visit.page(
        "messages.html",
        status=status,
        topic=topic,
        found=found,
        problem=problem,
        mode=mode if mode in SEEKS else "latest",
        form=_format(asked),
        seeks=SEEKS,
        limits=_LIMITS,
        formats=FORMATS,
        after=_cursor(found.positions) if found else "",
        before=_cursor(found.before) if found else "",
        line=_line(name, asked),
    )


async def tail(visit: Visit, name: str) -> Response:
    """Show records after a cursor, as a part: the live tail repeats the request."""
    positions = _positions(visit.query.get("after", ""))
    query = replace(_query({**visit.query, "from": "latest"}), seek=Seek("positions", 0, positions))
    found = await messages.read(visit.admin, name, replace(query, limit=200))
    response = visit.page(
        "parts/records.html",
        topic_name=name,
        records=found.records,
        form=_format(visit.query),
    )
    response.headers["X-After"] = _cursor({**positions, **found.positions})
    return response


async def download(visit: Visit, name: str, partition: str, offset: str) -> Response:
    """Send the value of one record as a file."""
    record = await _one(visit, name, partition, offset)
    return Response(
        record.value or b"",
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="record-{partition}-{offset}.bin"'},
    )


async def export(visit: Visit, name: str) -> Response:
    """Send the records that the page shows as lines of JSON."""
    found = await messages.read(visit.admin, name, _query(visit.query))
    lines = "".join(json.dumps(_as_json(record)) + "\n" for record in found.records)
    return Response(
        lines,
        media_type="application/x-ndjson",
        headers={"content-disposition": 'attachment; filename="records.ndjson"'},
    )


async def show_produce(visit: Visit, name: str) -> Response:
    """Show the form that writes a record."""
    return await _produce_page(visit, name, {})


async def produce(visit: Visit, form: Form, name: str) -> Response:
    """Write a record, and show where it is."""
    values = form.as_mapping()
    try:
        partition, offset = await messages.produce(visit.admin, name, _record(form))
    except AdminError as error:
        return await _produce_page(visit, name, values, problem=error.message, status=error.status)
    return await _produce_page(visit, name, values, written=(partition, offset))


async def _produce_page(
    visit: Visit,
    name: str,
    values: Mapping[str, str],
    *,
    problem: str = "",
    status: int = 200,
    written: tuple[int, int] | None = None,
) -> Response:
    topic = await topics.get_topic(visit.admin, name)
    return visit.page(
        "produce.html",
        status=status,
        topic=topic,
        values=values,
        problem=problem,
        written=written,
        line=command("topic", "produce", name, "--key-separator", ":"),
    )


def _record(form: Form) -> NewRecord:
    headers: list[tuple[str, bytes | None]] = []
    for line in form.text("headers").splitlines():
        if line.strip():
            key, separator, value = line.partition("=")
            if not separator:
                raise bad_value(f"the header {line!r} is not NAME=VALUE", field="headers")
            headers.append((key.strip(), value.encode()))
    encoding = form.text("encoding", "text")
    return NewRecord(
        None if form.checked("no_key") else _bytes("key", form.text("key"), encoding),
        None if form.checked("no_value") else _bytes("value", form.text("value"), encoding),
        headers,
        form.integer("partition"),
    )


def _bytes(field: str, text: str, encoding: str) -> bytes:
    """Return the bytes of a field. Browsers send lines that end with CR LF; records have LF."""
    text = text.replace("\r\n", "\n")
    if encoding == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            words = f"the {field} is not hexadecimal: two digits for each byte, such as 00 ff 7a"
            raise bad_value(words, field=field) from None
    if encoding == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            if field == "value":
                raise bad_value(f"the value is not JSON: {error}", field=field) from None
    return text.encode()


# -- the query of the page


def _query(asked: Mapping[str, str]) -> MessagesQuery:
    field = asked.get("field", "any")
    return MessagesQuery(
        seek=_seek(asked),
        partition=_number(asked.get("partition", ""), "partition"),
        limit=_number(asked.get("limit", ""), "limit") or 50,
        search=Search(
            asked.get("q", "")[:_TEXT_MAX],
            cast("SearchField", field if field in get_args(SearchField) else "any"),
        ),
        committed_only=asked.get("show") != "all",
    )


def _seek(asked: Mapping[str, str]) -> Seek:
    kind = asked.get("from", "latest")
    if kind == "offset":
        return Seek("offset", _number(asked.get("offset", ""), "offset") or 0)
    if kind == "timestamp":
        return Seek("timestamp", _time(asked.get("time", "")))
    if kind == "after":
        return Seek("positions", 0, _positions(asked.get("at", "")))
    if kind == "before":
        return Seek("latest", 0, _positions(asked.get("at", "")))
    return Seek(cast("SeekKind", kind) if kind == "earliest" else "latest")


def _time(text: str) -> int:
    """Return ms since 1970 of a time in UTC, or of @milliseconds. Raises AdminError."""
    text = text.strip()
    if text.startswith("@") and len(text) > 1:
        return _number(text[1:], "time") or 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        words = f"{text!r} is not a time; write 2026-01-31T12:00:00 or @milliseconds"
        raise bad_value(words, field="time") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def _number(text: str, field: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
        raise bad_value(f"{field}: {text!r} is not a whole number", field=field)
    return int(text)


def _format(asked: Mapping[str, str]) -> Format:
    form = cast("Format", asked.get("as", "auto"))
    return form if form in FORMATS else "auto"


def _cursor(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def _positions(text: str) -> dict[int, int]:
    try:
        pairs = [item.split(":") for item in text.split(",") if item]
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise bad_value("the place to read from is malformed", field="at") from None


def _line(name: str, asked: Mapping[str, str]) -> str:
    words: list[object] = ["topic", "consume", name]
    starts = {"earliest": "earliest", "latest": "earliest", "tail": "latest"}
    mode = asked.get("from", "latest")
    start = {"offset": asked.get("offset", ""), "timestamp": asked.get("time", "")}.get(mode)
    words += ["--from", start or starts.get(mode, "earliest")]
    if asked.get("partition"):
        words += ["--partition", asked["partition"]]
    if mode != "tail":
        words += ["--until-end"]
    return command(*words)


async def _one(visit: Visit, name: str, partition: str, offset: str) -> StoredRecord:
    place = _number(offset, "offset") or 0
    query = MessagesQuery(
        Seek("offset", place), _number(partition, "partition"), limit=1, committed_only=False
    )
    found = await messages.read(visit.admin, name, query)
    for record in found.records:
        if record.offset == place:
            return record
    raise NotFoundError(f"{name}-{partition} has no record at offset {offset}")


def _as_json(record: StoredRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "state": record.state,
        "producer_id": record.producer_id,
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")
