"""The main job end to end: load a real file, read it back twice, show that nothing is missing.

``make demo`` runs it on a made-up log of search queries, ``make demo INPUT=path`` on a file of
yours. Records go in with keys through the native client and come back through a Kafka client
(librdkafka) and through gRPC; both are compared with the file, as multisets and in the order of
each key.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import confluent_kafka
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from tidemark.cli.client_calls import run
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import HOST, Layout, Shape
from tidemark.cli.failure import CommandError
from tidemark.cli.search_queries import KEY_FIELD, search_queries
from tidemark.cli.topic.lines import open_lines
from tidemark.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidemark.client.errors import UnknownTopicOrPartitionError
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

_IDLE_SECONDS_MAX: Final = 30
_POLL_SECONDS: Final = 0.2
_RECORDS_A_POLL: Final = 5_000
_TELL_EVERY: Final = 2_000
_MIB: Final = 1024 * 1024
_clock = Clock()
_stdout_is_terminal: Final = sys.stdout.isatty()
_console = Console(highlight=False, width=None if _stdout_is_terminal else 120)

Advance = Callable[[int], None]


@dataclass(slots=True)
class Tale:
    """What went by: how many records and bytes, each record's number, and each key's order.

    A record is remembered by a digest, an order as a chain of digests, so that a large file fits
    into memory.
    """

    title: str
    records: int = 0
    total_bytes: int = 0
    seconds: float = 0.0
    seen: Counter[bytes] = field(default_factory=Counter)
    order: dict[bytes, bytes] = field(default_factory=dict)
    by_partition: Counter[int] = field(default_factory=Counter)

    def add(self, key: bytes, value: bytes) -> None:
        """One record."""
        self.records += 1
        self.total_bytes += len(key) + len(value)
        self.seen[_digest(key, value)] += 1
        self.order[key] = _digest(self.order.get(key, b""), value)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure what happens within."""
        began_ms = _clock.now_ms()
        yield
        self.seconds = max(0.001, (_clock.now_ms() - began_ms) / 1_000)

    def missing_from(self, other: "Tale") -> int:
        """Records of ours that the other has not, each as often as it is missing."""
        return (self.seen - other.seen).total()

    def keys_out_of_order(self, other: "Tale") -> int:
        """Keys whose records do not come in the same order."""
        return sum(other.order.get(key) != chain for key, chain in self.order.items())


def _digest(first: bytes, second: bytes) -> bytes:
    return blake2b(b"%d:%b%b" % (len(first), first, second), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class KeyField:
    """A field of a line, counted from 1, between separators (or any white space)."""

    number: int
    separator: bytes | None

    def of(self, line: bytes) -> bytes:
        """The key; empty where a line is too short."""
        fields = line.split(self.separator, self.number)
        return fields[self.number - 1] if len(fields) >= self.number else b""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the demonstration takes place."""

    bootstrap: str
    grpc: str
    topic: str
    partitions: int


async def create_topic(target: Target) -> None:
    """Anew: one that is left over from an earlier run is deleted first."""
    async with Admin(target.bootstrap) as admin:
        with suppress(UnknownTopicOrPartitionError):
            await admin.delete_topics([target.topic])
        await admin.create_topics([NewTopic(target.topic, target.partitions, 1)])


async def load(target: Target, path: Path, key_field: KeyField, advance: Advance) -> Tale:
    """Send every line of a file, with keys."""
    sent = Tale("loaded")
    with sent.timed(), open_lines(str(path)) as source:
        async with Producer(target.bootstrap, linger_ms=20, batch_size=256 * 1024) as producer:
            for line in source:
                key = key_field.of(line)
                delivery = await producer.enqueue(target.topic, line, key)
                sent.add(key, line)
                sent.by_partition[delivery.partition.partition] += 1
                if sent.records % _TELL_EVERY == 0:
                    advance(source.position_bytes)
                    await asyncio.sleep(0)
            await producer.flush()
    return sent


def read_by_kafka(target: Target, advance: Advance) -> Tale:
    """All partitions from the beginning to where they end now, with librdkafka."""
    read = Tale("Kafka client")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "demo",  # librdkafka wants one; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    with read.timed():
        try:
            consumer.assign(
                [
                    confluent_kafka.TopicPartition(target.topic, number, 0)
                    for number in range(target.partitions)
                ]
            )
            _take_all(consumer, target, read, advance)
        finally:
            consumer.close()
    return read


def _take_all(
    consumer: confluent_kafka.Consumer, target: Target, read: Tale, advance: Advance
) -> None:
    ended: set[int] = set()
    heard_ms = _clock.now_ms()
    while len(ended) < target.partitions:
        messages = consumer.consume(_RECORDS_A_POLL, timeout=_POLL_SECONDS)
        for message in messages:
            _take(message, read, ended)
        advance(read.records)
        if messages:
            heard_ms = _clock.now_ms()
        elif _clock.now_ms() - heard_ms > _IDLE_SECONDS_MAX * 1_000:
            raise CommandError(
                f"the Kafka client got nothing from {target.topic} for {_IDLE_SECONDS_MAX} s",
                hint="tidemark dev status",
                code=ExitCode.TEMPORARY,
            )


def _take(message: confluent_kafka.Message, read: Tale, ended: set[int]) -> None:
    error, partition = message.error(), message.partition()
    if error is None:
        assert partition is not None, "librdkafka names it for records and ends alike"
        read.add(message.key() or b"", message.value() or b"")
        read.by_partition[partition] += 1
    elif error.name() == "_PARTITION_EOF":
        assert partition is not None, "and for ends alike"
        ended.add(partition)
    else:
        raise CommandError(f"the Kafka client failed: {error.str()}")


async def read_by_grpc(target: Target, advance: Advance) -> Tale:
    """All partitions from the beginning to where they end now, through the PartitionStore."""
    read = Tale("gRPC")
    with read.timed():
        async with Consumer(
            target.grpc, transport="grpc", auto_offset_reset="earliest"
        ) as consumer:
            partitions = [TopicPartition(target.topic, n) for n in range(target.partitions)]
            consumer.assign(partitions)
            left = await consumer.end_offsets(partitions)
            while left:
                for record in await consumer.poll(_RECORDS_A_POLL):
                    read.add(record.key or b"", record.value or b"")
                    read.by_partition[record.partition] += 1
                advance(read.records)
                for partition, end in list(left.items()):
                    if await consumer.position(partition) >= end:
                        del left[partition]
    return read


# The cluster, the input, and what is shown.


@contextmanager
def a_cluster(directory: Path, *, keep: bool) -> Iterator[Layout]:
    """The embedded cluster:

    started if it is not running, and stopped again if it was started here.
    """
    kept = Shape.read(Layout(directory).shape_path)
    cluster = DevCluster(Layout(directory, kept or Shape()), report=_say)
    ran_before = bool(cluster.running())
    try:
        cluster.start()
        yield cluster.layout
    finally:
        if not ran_before and not keep:
            cluster.stop()


def made_up_input(directory: Path, count: int, seed: int) -> Path:
    """A file of search queries, made when it is not there yet."""
    path = directory / "demo" / f"search-queries-{seed}-{count}.tsv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as scratch:
            scratch.writelines(f"{line}\n" for line in search_queries(count, seed=seed))
        Path(scratch.name).replace(path)
    return path


def topic_name(path: Path) -> str:
    """``demo-access-log`` for ``access.log.gz``."""
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", path.name.removesuffix(".gz")).strip("-").lower()
    return f"demo-{stem or 'input'}"[:200]


def run_phases(target: Target, path: Path, key_field: KeyField) -> tuple[Tale, Tale, Tale]:
    """Load, read, read again, under one progress display."""
    with Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=_console,
        disable=not _stdout_is_terminal,
    ) as progress:

        def bar(title: str, total: int) -> Advance:
            task = progress.add_task(title, total=total)
            return lambda done: progress.update(task, completed=done)

        size_bytes = path.stat().st_size
        advance = bar("load", size_bytes)
        run(create_topic(target))
        sent = run(load(target, path, key_field, advance))
        advance(size_bytes)
        by_kafka = read_by_kafka(target, bar("read with a Kafka client", sent.records))
        by_grpc = run(read_by_grpc(target, bar("read with gRPC", sent.records)))
    return sent, by_kafka, by_grpc


def show(target: Target, sent: Tale, readings: Sequence[Tale]) -> None:
    """The short tables at the end."""
    table = Table(box=None, pad_edge=False)
    table.add_column(f"topic {target.topic}")
    for column in ("records", "MiB", "records/s", "MiB/s", "missing", "twice", "misordered"):
        table.add_column(column, justify="right")
    table.add_row(f"{sent.title} by the native client", *_rates(sent), "", "", "")
    for read in readings:
        table.add_row(
            f"read back by {read.title}",
            *_rates(read),
            f"{sent.missing_from(read):,}",
            f"{read.missing_from(sent):,}",
            f"{sent.keys_out_of_order(read):,}",
        )
    shares = Table(box=None, pad_edge=False)
    shares.add_column("partition", justify="right")
    for tale in (sent, *readings):
        shares.add_column(tale.title, justify="right")
    for number in range(target.partitions):
        counts = (f"{tale.by_partition[number]:,}" for tale in (sent, *readings))
        shares.add_row(str(number), *counts)
    for shown in (table, shares):
        _console.print()
        _console.print(shown)


def _rates(tale: Tale) -> tuple[str, ...]:
    return (
        f"{tale.records:,}",
        f"{tale.total_bytes / _MIB:,.1f}",
        f"{tale.records / tale.seconds:,.0f}",
        f"{tale.total_bytes / _MIB / tale.seconds:,.1f}",
    )


def verdict(sent: Tale, readings: Sequence[Tale]) -> list[str]:
    """What is wrong, a line each; nothing when all is there, once and in order."""
    problems = []
    for read in readings:
        for count, what in (
            (sent.missing_from(read), "records missing"),
            (read.missing_from(sent), "records twice, or never sent"),
            (sent.keys_out_of_order(read), "keys whose records came in another order"),
            (_moved(sent, read), "partitions with another number of records"),
        ):
            if count:
                problems.append(f"{read.title}: {count:,} {what}")
    return problems


def _moved(sent: Tale, read: Tale) -> int:
    partitions = set(sent.by_partition) | set(read.by_partition)
    return sum(sent.by_partition[number] != read.by_partition[number] for number in partitions)


def _say(text: str) -> None:
    _console.print(text, soft_wrap=True)


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--input", type=Path, help="a file of lines, plain or .gz; default: made up"
    )
    parser.add_argument("--records", type=int, default=200_000, help="lines to make up")
    parser.add_argument("--seed", type=int, default=7, help="what they are made up from")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument(
        "--key-field",
        type=int,
        help="which field of a line is the key, from 1; default 1 (of an access log: the client)",
    )
    parser.add_argument("--separator", help="between fields; default: white space")
    parser.add_argument("--dir", type=Path, default=Path(".tidemark"), help="of the cluster")
    parser.add_argument("--keep", action="store_true", help="leave a cluster started here running")
    arguments = parser.parse_args()
    if arguments.partitions < 1 or (arguments.key_field or 1) < 1 or arguments.records < 1:
        parser.error("numbers here start from 1")
    return arguments


def demonstrate(arguments: argparse.Namespace) -> ExitCode:
    """Everything. Raises CommandError."""
    path: Path | None = arguments.input
    separator: str | None = arguments.separator
    number: int | None = arguments.key_field
    if path is None:
        path = made_up_input(arguments.dir, arguments.records, arguments.seed)
        separator, number = separator or "\t", number or KEY_FIELD
    elif not path.is_file():
        raise CommandError(f"there is no file {path}", code=ExitCode.NO_INPUT)
    key_field = KeyField(number or 1, separator.encode() if separator else None)
    with a_cluster(arguments.dir, keep=arguments.keep) as layout:
        ports = layout.shape.ports
        grpc = ",".join(f"{HOST}:{ports.grpc + place}" for place in range(layout.shape.brokers))
        target = Target(layout.bootstrap, grpc, topic_name(path), arguments.partitions)
        _say(f"loading {path} with field {key_field.number} as key")
        sent, *readings = run_phases(target, path, key_field)
    show(target, sent, readings)
    problems = verdict(sent, readings)
    _say("")
    for problem in problems:
        _say(f"FAILED: {problem}")
    if problems:
        return ExitCode.FAILED
    _say(
        f"all {sent.records:,} records of {len(sent.order):,} keys came back through both doors:"
        " none missing, none twice, every key in order"
    )
    return ExitCode.OK


def main() -> int:
    """Run it; errors as one message on stderr."""
    try:
        return demonstrate(read_arguments())
    except CommandError as error:
        sys.stderr.write(
            f"error: {error.what}\n" + (f"  try: {error.hint}\n" if error.hint else "")
        )
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
