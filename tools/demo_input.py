"""What the demonstration sends: lines of a log, and which server each comes from.

Made-up search queries name their server themselves, and whole lines repeat: persistent users. The
lines of a file are dealt out to made-up servers; each gets the server's name and a sequence number
at its end, so that a file that is too short can be sent again and again without two equal records.
"""

import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Final, NamedTuple

from search_queries import KEY_FIELD, search_queries
from tidemark.cli.topic.lines import open_lines

TAB: Final = b"\t"
SERVER_FIELD: Final = 2
"""Of a made-up query, from 1."""


class Message(NamedTuple):
    """One record on its way in."""

    server: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Queries:
    """Search queries from a file that ``made_up`` wrote; the server is in the line."""

    path: Path

    def messages(self) -> Iterator[Message]:
        """In the order of the file."""
        with open_lines(str(self.path)) as source:
            for line in source:
                yield Message(self.server_of(line), line)

    def server_of(self, value: bytes) -> bytes:
        """Who sent this record."""
        return value.split(TAB, SERVER_FIELD)[SERVER_FIELD - 1]


@dataclass(frozen=True, slots=True)
class Lines:
    """Any file of lines, plain or .gz, sent ``copies`` times over by ``servers``."""

    path: Path
    copies: int
    servers: int

    def messages(self) -> Iterator[Message]:
        """In the order of the file; each with its server's name and its number at the end."""
        lines = chain.from_iterable(map(self._once, repeat(self.path, self.copies)))
        for number, line in enumerate(lines):
            server = b"server-%02d" % (number % self.servers)
            yield Message(server, b"%b\t%b\t%d" % (line, server, number))

    def server_of(self, value: bytes) -> bytes:
        """Who sent this record."""
        return value.rsplit(TAB, 2)[1]

    @staticmethod
    def _once(path: Path) -> Iterator[bytes]:
        with open_lines(str(path)) as source:
            yield from (line for line in source if line.strip())


Input = Queries | Lines


def made_up(directory: Path, count: int, seed: int) -> Queries:
    """A file of search queries, made when it is not there yet."""
    path = directory / "demo" / f"search-queries-{seed}-{count}.tsv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as scratch:
            scratch.writelines(f"{line}\n" for line in search_queries(count, seed=seed))
        Path(scratch.name).replace(path)
    return Queries(path)


def from_file(path: Path, records_min: int, servers: int) -> Lines:
    """A file of the user's, as often as it takes."""
    with open_lines(str(path)) as source:
        count = sum(1 for line in source if line.strip())
    return Lines(path, -(-records_min // max(1, count)), servers)


def partition_of(server: bytes, partitions: int) -> int:
    """Topic A is sharded by server: all of a server's records are in one partition."""
    return zlib.crc32(server) % partitions


@dataclass(frozen=True, slots=True)
class KeyField:
    """How the proof finds a record's key, on its own: a field, from 1, between separators.

    ``rule`` says the same to the job.
    """

    number: int = KEY_FIELD
    separator: bytes = TAB

    @property
    def rule(self) -> str:
        """As ``reshard --key`` takes it."""
        return f"field:{self.number}:{self.separator.decode()}"

    def of(self, value: bytes) -> bytes:
        """The key; empty where a line is too short."""
        fields = value.split(self.separator, self.number)
        return fields[self.number - 1] if len(fields) >= self.number else b""
