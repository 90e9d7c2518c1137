"""``tidemark topic produce``: lines of a file or of stdin as records."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from tidemark.cli.output import progress, say
from tidemark.cli.reach import reach
from tidemark.cli.security import security_over
from tidemark.cli.topic.lines import LineSource, open_lines
from tidemark.cli.topic.percent_format import InputRecord, bad_line
from tidemark.client.config import ProducerConfig, with_settings
from tidemark.client.producer.producer import Producer
from tidemark.runtime.clock import Clock

_CHUNK_BYTES: Final = 256 * 1024
_RECORD_BYTES_MAX: Final = 256 * 1024 * 1024
_REPORT_BYTES_MIN: Final = 4 * 1024 * 1024

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """Records to send, and their destination."""

    bootstrap: str
    topic: str
    source: str
    read: Callable[[bytes, int], InputRecord]
    """Reader of a record's text, with the number of the record for messages."""
    end: bytes
    """Bytes between records."""
    headers: Sequence[Header]
    partition: int | None
    settings: dict[str, Any]


@dataclass(slots=True)
class Sent:
    """Progress of sending."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0


async def produce(job: ProduceJob, sent: Sent) -> None:
    """Send every line and wait until all are acknowledged; ``sent`` counts them meanwhile.

    Raises ClientError, and CommandError for input that cannot be read.
    """
    clock = Clock()
    began_ms = clock.now_ms()
    try:
        with open_lines(job.source) as source, _progress(job, source) as advance:
            config = with_settings(ProducerConfig(), security_over(job.settings, job.bootstrap))
            await reach(job.bootstrap, config)
            async with Producer(job.bootstrap, config) as producer:
                await producer.partitions_for(job.topic)
                async for lines in line_chunks(source, job.end):
                    await _send_lines(producer, job, lines, sent)
                    advance(source.position_bytes)
                await producer.flush()
    finally:
        sent.seconds = (clock.now_ms() - began_ms) / 1_000


async def _send_lines(
    producer: Producer, job: ProduceJob, lines: Sequence[bytes], sent: Sent
) -> None:
    for line in lines:
        record = job.read(line, sent.records + 1)
        await producer.enqueue(
            job.topic,
            record.value,
            record.key,
            partition=record.partition if job.partition is None else job.partition,
            timestamp_ms=record.timestamp_ms,
            headers=[*record.headers, *job.headers],
        )
        sent.records += 1
        sent.bytes += len(line)
    if producer.statistics().records_failed:
        await producer.flush()  # raises their error
    await asyncio.sleep(0)


async def line_chunks(source: LineSource, end: bytes) -> AsyncIterator[list[bytes]]:
    """Yield whole lines in chunks: of a terminal one by one, of a file thousands at once."""
    rest = b""
    carriage = b"\r" if end == b"\n" else b""
    while chunk := await _read_some(source):
        *lines, rest = (rest + chunk).split(end)
        if len(rest) > _RECORD_BYTES_MAX:
            raise bad_line(0, rest, f"has no end within {_RECORD_BYTES_MAX} bytes")
        yield [line.removesuffix(carriage) for line in lines]
    if rest:
        yield [rest]


async def _read_some(source: LineSource) -> bytes:
    """Return a chunk, b'' at the end. Waiting for a terminal or a pipe must not block sending."""
    descriptor = source.fileno()
    if source.size_bytes is not None or stat.S_ISREG(os.fstat(descriptor).st_mode):
        return source.read_some(_CHUNK_BYTES)
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(descriptor, _resolve, readable)
    except PermissionError:  # epoll takes no device that never waits, such as /dev/null
        return source.read_some(_CHUNK_BYTES)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


def _resolve(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _progress(job: ProduceJob, source: LineSource) -> AbstractContextManager[Callable[[int], None]]:
    """Return a function for the position, with a progress bar for large input."""
    size_bytes = source.size_bytes
    if size_bytes is None or size_bytes < _REPORT_BYTES_MIN:
        return nullcontext(lambda _: None)
    return progress(f"to {job.topic}", size_bytes)


def report(job: ProduceJob, sent: Sent) -> None:
    """Print the numbers of records and bytes, and the rate."""
    rate = sent.records / sent.seconds if sent.seconds else 0.0
    say(
        f"sent {sent.records:,} records, {sent.bytes:,} bytes to {job.topic}"
        f" in {sent.seconds:.2f} s ({rate:,.0f} records/s)"
    )
