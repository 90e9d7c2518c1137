"""Formats as kcat and rpk have them: ``%k %v\\n`` prints records, and reads them back. Pure.

A field is ``%`` and a letter, with an encoding in braces if it is bytes: ``%v{hex}``. What stands
between fields is literal text.
"""

import base64
import binascii
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.codec.varint import INT64_MAX
from tidemark.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from tidemark.client.consumer.fetched_chunk import ConsumerRecord

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(
    r"\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>[ntr0\\])|%(?P<field>[a-zA-Z%])(?:\{(?P<how>\w+)\})?"
)
_ENCODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "raw": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "json": lambda data: json.dumps(data.decode("utf-8", "backslashreplace")).encode(),
}
_DECODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "raw": bytes,
    "hex": lambda text: bytes.fromhex(text.decode("ascii")),
    "base64": lambda text: base64.b64decode(text, validate=True),
    "json": lambda text: str(json.loads(text)).encode(),
}
FIELDS_HELP: Final = (
    "%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %v or %s value, %h headers"
    " a=b,c=d, %K %V %S their lengths (-1: null), %% a percent sign; {hex}, {base64} or {json}"
    " after %k, %v and %h; \\n \\t \\xHH"
)
_BYTES_FIELDS: Final = "kvsh"
_PRINTED: Final = "tpoTkvshKVS"
_READ: Final = "pTkvsh"


class Field(NamedTuple):
    """Field of a format; ``how`` is the encoding of bytes."""

    letter: str
    how: str = "raw"


Part = Field | bytes


class InputRecord(NamedTuple):
    """Record read from a line of input."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def compile_format(text: str, fields: str = _PRINTED) -> tuple[Part, ...]:
    """Return the parts of a format: fields, and the bytes between. Raises CommandError."""
    parts: list[Part] = []
    place = 0
    for match in _TOKEN.finditer(text):
        parts.append(text[place : match.start()].encode())
        place = match.end()
        parts.append(_part(text, match, fields))
    parts.append(text[place:].encode())
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += part
        elif part:
            joined.append(part)
    return tuple(joined)


def _part(text: str, match: re.Match[str], fields: str) -> Part:
    if match["hex"]:
        return bytes.fromhex(match["hex"])
    if match["escape"]:
        return _ESCAPES[match["escape"]]
    letter, how = match["field"], match["how"] or "raw"
    if letter == "%":
        return b"%"
    if letter not in fields:
        raise _wrong(text, f"there is no field %{letter}")
    if how not in _ENCODERS or (how != "raw" and letter not in _BYTES_FIELDS):
        raise _wrong(text, f"%{letter} has no encoding {how!r}")
    return Field("v" if letter == "s" else letter, how)


def _wrong(text: str, problem: str) -> CommandError:
    return CommandError(f"--format {text!r}: {problem}", hint=FIELDS_HELP, code=ExitCode.USAGE)


def as_bytes(record: "ConsumerRecord", parts: Iterable[Part]) -> bytes:
    """Return one record in a format; nothing is added to it."""
    return b"".join(part if isinstance(part, bytes) else _value_of(record, part) for part in parts)


def _value_of(record: "ConsumerRecord", field: Field) -> bytes:
    encode = _ENCODERS[field.how]
    match field.letter:
        case "k":
            return encode(record.key or b"")
        case "v":
            return encode(record.value or b"")
        case "h":
            pairs = (name.encode() + b"=" + encode(value or b"") for name, value in record.headers)
            return b",".join(pairs)
        case "t":
            return record.topic.encode()
        case _:
            return str(_number_of(record, field.letter)).encode()


def _number_of(record: "ConsumerRecord", letter: str) -> int:
    match letter:
        case "p":
            return record.partition
        case "o":
            return record.offset
        case "T":
            return record.timestamp_ms
        case "K":
            return -1 if record.key is None else len(record.key)
        case _:
            return -1 if record.value is None else len(record.value)


@dataclass(frozen=True, slots=True)
class InputFormat:
    """Format of input: the bytes that end a record, and an expression for what is before."""

    text: str
    end: bytes
    pattern: re.Pattern[bytes]
    fields: tuple[Field, ...]

    @classmethod
    def of(cls, text: str) -> "InputFormat":
        """Return the format of input. Without text after the last field a record ends with its
        line. Raises CommandError.
        """
        parts = compile_format(text, _READ)
        end = b"\n"
        if parts and isinstance(parts[-1], bytes):
            end = parts[-1]
            parts = parts[:-1]
        fields = tuple(part for part in parts if isinstance(part, Field))
        if not fields:
            raise _wrong(text, "it has no field")
        if len({field.letter for field in fields}) != len(fields):
            raise _wrong(text, "a field is named twice")
        if any(
            isinstance(one, Field) and isinstance(other, Field)
            for one, other in itertools.pairwise(parts)
        ):
            raise _wrong(text, "nothing separates two fields")
        last = parts[-1]
        expression = b"".join(
            re.escape(part) if isinstance(part, bytes) else b"(.*)" if part is last else b"(.*?)"
            for part in parts
        )
        return cls(text, end, re.compile(expression, re.DOTALL), fields)

    def read(self, line: bytes, number: int) -> InputRecord:
        """Return the record of a line. Raises CommandError with the line's number."""
        match = self.pattern.fullmatch(line)
        if match is None:
            raise bad_line(number, line, f"does not have the format {self.text!r}")
        values: dict[str, bytes] = {}
        for field, text in zip(self.fields, match.groups(), strict=True):
            try:
                values[field.letter] = text if field.letter == "h" else _DECODERS[field.how](text)
                if field.letter == "p":
                    int(text)
                elif field.letter == "T":
                    _timestamp(int(text))
            except (ValueError, binascii.Error) as error:
                raise bad_line(number, line, f"has no %{field.letter}: {error}") from None
        hows = {field.letter: field.how for field in self.fields}
        return InputRecord(
            values.get("k"),
            values.get("v"),
            _headers(values.get("h", b""), _DECODERS[hows.get("h", "raw")], line, number),
            int(values["p"]) if "p" in values else None,
            _timestamp(int(values["T"])) if "T" in values else None,
        )


def _timestamp(number: int) -> int | None:
    """Return the time of a record in ms; None for -1, which is a record without one. Raises
    ValueError.
    """
    if not -1 <= number <= INT64_MAX:
        raise ValueError(f"{number} is no time in ms since 1970")
    return None if number == -1 else number


def _headers(
    text: bytes, decode: Callable[[bytes], bytes], line: bytes, number: int
) -> tuple[tuple[str, bytes], ...]:
    pairs = []
    for pair in text.split(b",") if text else ():
        name, equals, value = pair.partition(b"=")
        try:
            pairs.append((name.decode(), decode(value)))
        except (ValueError, binascii.Error) as error:
            raise bad_line(number, line, f"has a header that cannot be read: {error}") from None
        if not equals:
            raise bad_line(number, line, "has a header without =")
    return tuple(pairs)


def bad_line(number: int, line: bytes, problem: str) -> CommandError:
    """Return the error of a line of input that cannot be read."""
    shown = line[:60].decode("utf-8", "backslashreplace")
    return CommandError(
        f"line {number} {problem}: {shown!r}",
        hint="earlier records were sent; correct the line, or choose another format",
        code=ExitCode.DATA,
    )


def read_json(line: bytes, number: int) -> InputRecord:
    """Return the record of a line as ``consume -f json`` prints it. Topic and offset are ignored; a
    key or value that is no string is sent as JSON text. Raises CommandError.
    """
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        headers = tuple(
            (str(each["name"]), _bytes_in(each, "value")) for each in document.get("headers") or ()
        )
        timestamp = document.get("timestamp")
        partition = document.get("partition")
        return InputRecord(
            _bytes_in(document, "key"),
            _bytes_in(document, "value"),
            headers,
            None if partition is None else int(partition),
            None if timestamp is None else _timestamp(int(timestamp)),
        )
    except (ValueError, KeyError, TypeError, OverflowError, binascii.Error) as error:
        raise bad_line(number, line, f"is no record in JSON ({error})") from None


def _bytes_in(document: Mapping[str, object], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(str(encoded), validate=True)
    value = document.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
