"""``tidemark topic consume``: records as lines on stdout."""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from tidemark.cli.failure import CommandError
from tidemark.cli.output import progress, say
from tidemark.cli.reach import reach
from tidemark.cli.security import security_over
from tidemark.cli.topic.formats import Printer, StartAt
from tidemark.client.config import ConsumerConfig, OffsetReset, with_settings
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

_RECORDS_A_POLL: Final = 5_000
_POLL_MS: Final = 1_000
_COUNT_WORTH_A_BAR: Final = 10_000


@dataclass(frozen=True, slots=True)
class ConsumeJob:
    """Records to read, and the format to print."""

    bootstrap: str
    topic: str
    start: StartAt
    partitions: Sequence[int]
    count: int | None
    until_end: bool
    printer: Printer
    settings: dict[str, Any]


@dataclass(slots=True)
class Read:
    """Progress of reading."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    next_offsets: dict[int, int] = field(default_factory=dict)


async def consume(job: ConsumeJob, read: Read) -> None:
    """Print records until the count, the end, or without limit; ``read`` counts them meanwhile.

    Raises ClientError.
    """
    clock = Clock()
    began_ms = clock.now_ms()
    try:
        config = with_settings(
            ConsumerConfig(auto_offset_reset=_reset(job.start)),
            security_over(job.settings, job.bootstrap),
        )
        await reach(job.bootstrap, config)
        async with Consumer(job.bootstrap, config) as consumer:
            assigned = await _assign(consumer, job)
            ends = await consumer.end_offsets(assigned) if job.until_end else {}
            with _progress(job) as advance:
                await _print_all(consumer, job, read, ends, advance)
    finally:
        read.seconds = (clock.now_ms() - began_ms) / 1_000


def _reset(start: StartAt) -> OffsetReset:
    """Return the end of the log at which to start where the requested position is missing."""
    return "latest" if start.kind == "latest" else "earliest"


async def _assign(consumer: Consumer, job: ConsumeJob) -> Sequence[TopicPartition]:
    there = await consumer.assign_topic(job.topic)
    wanted = [TopicPartition(job.topic, number) for number in job.partitions] or list(there)
    missing = next((partition for partition in wanted if partition not in there), None)
    if missing is not None:
        raise CommandError(
            f"{job.topic} has no partition {missing.partition}",
            hint=f"it has {len(there)}, from 0 to {len(there) - 1}",
            code=ExitCode.USAGE,
        )
    consumer.assign(wanted)
    if job.start.kind == "timestamp":
        consumer.seek_to_timestamp(job.start.number)
    elif job.start.kind == "offset":
        for partition in wanted:
            consumer.seek(partition, job.start.number)
    return wanted


async def _print_all(
    consumer: Consumer,
    job: ConsumeJob,
    read: Read,
    ends: dict[TopicPartition, int],
    advance: Callable[[int], None],
) -> None:
    while not _done(job, read):
        if job.until_end and await _at_end(consumer, ends):
            return
        left = _RECORDS_A_POLL if job.count is None else job.count - read.records
        records = await consumer.poll(min(left, _RECORDS_A_POLL), timeout_ms=_POLL_MS)
        wanted = [record for record in records if _before_end(record, ends)]
        _print(wanted, job.printer)
        _count(read, wanted)
        advance(read.records)


def _done(job: ConsumeJob, read: Read) -> bool:
    return job.count is not None and read.records >= job.count


async def _at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """True if every partition was read up to its end at the start of the command."""
    for partition, end in ends.items():
        if end > 0 and await consumer.position(partition) < end:
            return False
    return True


def _before_end(record: ConsumerRecord, ends: dict[TopicPartition, int]) -> bool:
    """True if the record is before the requested end, if any."""
    end = ends.get(TopicPartition(record.topic, record.partition))
    return end is None or record.offset < end


def _print(records: Iterable[ConsumerRecord], printer: Printer) -> None:
    """Print with one write: a flush for each line would cost more than reading it."""
    text = b"".join(printer(record) for record in records)
    if text:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _count(read: Read, records: Iterable[ConsumerRecord]) -> None:
    for record in records:
        read.records += 1
        read.bytes += len(record.key or b"") + len(record.value or b"")
        read.next_offsets[record.partition] = record.offset + 1


def _progress(job: ConsumeJob) -> AbstractContextManager[Callable[[int], None]]:
    """Return a progress bar for a large count, unless records are printed on a terminal."""
    count = job.count
    if count is None or count < _COUNT_WORTH_A_BAR or sys.stdout.isatty():
        return nullcontext(lambda _: None)
    return progress(f"from {job.topic}", count)


def report(job: ConsumeJob, read: Read) -> None:
    """Print the numbers of records and bytes, the rate, and the next offsets."""
    rate = read.records / read.seconds if read.seconds else 0.0
    after = " ".join(f"{number}:{offset}" for number, offset in sorted(read.next_offsets.items()))
    say(
        f"read {read.records:,} records, {read.bytes:,} bytes from {job.topic}"
        f" in {read.seconds:.2f} s ({rate:,.0f} records/s)"
        + (f"; next offsets {after}" if after else "")
    )
