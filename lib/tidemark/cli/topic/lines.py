"""Input of ``topic produce``: lines with keys and values."""

import gzip
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tidemark.cli.failure import CommandError
from tidemark.cli.topic.percent_format import InputFormat, InputRecord, bad_line, read_json
from tidemark.runtime.exit_codes import ExitCode

# RFC 1952: two magic bytes and the only compression method. No UTF-8 text begins with them.
GZIP_START: Final = b"\x1f\x8b\x08"
STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Rule for a line's key: the text before ``separator``, or the match of ``pattern`` (its first
    group, if any).

    Without either, records have no key. ``null_marker`` is the text of a null key or value.
    """

    separator: bytes | None = None
    pattern: re.Pattern[bytes] | None = None
    null_marker: bytes | None = None

    def split(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None]:
        """Return key and value of a line. Raises CommandError with the line's number."""
        key: bytes | None = None
        value: bytes | None = line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise bad_line(number, line, f"has no separator {self.separator.decode()!r}")
        elif self.pattern is not None:
            match = self.pattern.search(line)
            if match is None:
                raise bad_line(number, line, f"does not match {self.pattern.pattern.decode()!r}")
            key = match[1] if self.pattern.groups else match[0]
        return self._or_null(key), self._or_null(value)

    def read(self, line: bytes, number: int) -> InputRecord:
        """Return the record of a line. Raises CommandError with the line's number."""
        return InputRecord(*self.split(line, number))

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null_marker else text


def compile_key_pattern(text: str) -> re.Pattern[bytes]:
    """Compile a regular expression. Raises CommandError if it is invalid."""
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise CommandError(
            f"--key-regex {text!r} is not a regular expression: {error}", code=ExitCode.USAGE
        ) from None


def key_rule(separator: str | None, pattern: str | None, null_marker: str | None) -> KeyRule:
    """Return the rule of the options. Raises CommandError if they contradict each other."""
    if separator is not None and pattern is not None:
        raise CommandError(
            "--key-separator and --key-regex cannot be combined", code=ExitCode.USAGE
        )
    if separator == "":
        raise CommandError("--key-separator is empty", code=ExitCode.USAGE)
    return KeyRule(
        separator=None if separator is None else separator.replace("\\t", "\t").encode(),
        pattern=None if pattern is None else compile_key_pattern(pattern),
        null_marker=None if null_marker is None else null_marker.encode(),
    )


Reader = Callable[[bytes, int], InputRecord]


def reader_for(text: str | None, rule: KeyRule, *, keep_partitions: bool) -> tuple[Reader, bytes]:
    """Return the reader of records for a format, without one that of ``rule``, and the bytes that
    end a record. Raises CommandError.
    """
    if text is None:
        return rule.read, b"\n"
    if rule != KeyRule():
        raise CommandError(
            "--format cannot be combined with --key-separator, --key-regex and --null",
            hint="name the key in the format: -f '%k:%v'",
            code=ExitCode.USAGE,
        )
    if text != "json":
        found = InputFormat.of(text)
        return found.read, found.end
    if keep_partitions:
        return read_json, b"\n"
    return lambda line, number: read_json(line, number)._replace(partition=None), b"\n"


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parse ``["a=1", "b=x=y"]`` into ``{"a": "1", "b": "x=y"}``. Raises CommandError."""
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {text!r}: expected NAME=VALUE", code=ExitCode.USAGE)
        pairs[name.strip()] = value
    return pairs


class LineSource:
    """Bytes of a file, of a gzip file or of stdin, with the position in the file on disk."""

    def __init__(self, raw: IO[bytes], content: IO[bytes], size_bytes: int | None) -> None:
        self._raw = raw
        self._content = content
        self.size_bytes = size_bytes
        """Size of the file on disk; None for stdin."""

    @property
    def position_bytes(self) -> int:
        """Bytes read of the file on disk, compressed or not."""
        return self._raw.tell() if self.size_bytes is not None else 0

    def fileno(self) -> int:
        """Return the descriptor, to wait until it is readable."""
        return self._raw.fileno()

    def read_some(self, bytes_max: int) -> bytes:
        """Return the available bytes, uncompressed; b"" at the end."""
        return self._content.read(bytes_max)

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines without their line ends."""
        for line in self._content:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def open_lines(name: str) -> Iterator[LineSource]:
    """Open a file or stdin (``-``); a file that begins like a gzip file is decompressed.

    Raises CommandError if the file cannot be read or is damaged.
    """
    if name == STDIN:
        yield LineSource(sys.stdin.buffer, sys.stdin.buffer, None)
        return
    path = Path(name)
    try:
        with path.open("rb") as raw:
            compressed = raw.read(len(GZIP_START)) == GZIP_START
            raw.seek(0)
            size_bytes = path.stat().st_size
            if not compressed:
                yield LineSource(raw, raw, size_bytes)
                return
            with gzip.open(raw) as content:
                yield LineSource(raw, content, size_bytes)  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CommandError(f"{name} is damaged: {error}", code=ExitCode.DATA) from None
    except OSError as error:
        raise CommandError(
            f"cannot read {name}: {error.strerror}", code=ExitCode.NO_INPUT
        ) from None
