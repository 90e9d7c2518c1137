"""Copy of a log, batch by batch, into a future log. Records are never looked at."""

from typing import NamedTuple

from crc32c import crc32c
from tidemark.codec.control_record import ControlRecord, read_control
from tidemark.codec.record_batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    read_header,
)
from tidemark.codec.records import RecordsError
from tidemark.storage.batch_walk import FrameError

from broker.core.producers import ProducerState
from broker.storage.log import AppendInfo, Log, LogRead, LogSlice
from broker.storage.segment import frame_problem


class Chunk(NamedTuple):
    """Whole batches of a log, one behind the other."""

    records: bytes
    infos: tuple[AppendInfo, ...]
    headers: tuple[BatchHeader, ...]
    controls: dict[int, ControlRecord | None]
    """Content of the control batches, by base offset."""


def read_chunk(read: LogRead) -> Chunk:
    """Read batches and check their CRCs; for a thread. Raises FrameError, DiskError."""
    pieces: list[bytes] = []
    infos: list[AppendInfo] = []
    headers: list[BatchHeader] = []
    controls: dict[int, ControlRecord | None] = {}
    for piece in read.slices:
        content = piece.file.read_at(piece.position, piece.length)
        pieces.append(content)
        view, position = memoryview(content), 0
        while position < len(view):
            at = piece.position + position
            header = _checked(view, position, at)
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                controls[header.base_offset] = _control(batch, header, at)
            headers.append(header)
            infos.append(
                AppendInfo(
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                    header.partition_leader_epoch,
                    header.size_bytes,
                )
            )
            position += header.size_bytes
    return Chunk(b"".join(pieces), tuple(infos), tuple(headers), controls)


def _checked(view: memoryview, position: int, at: int) -> BatchHeader:
    if len(view) - position < HEADER_BYTES:
        raise FrameError(at, f"{len(view) - position} bytes are not a batch")
    header = read_header(view, position)
    problem = frame_problem(header, len(view) - position)
    if problem is None and crc32c(view[position + CRC_START : position + header.size_bytes]) != (
        header.crc
    ):
        problem = "CRC mismatch"
    if problem is not None:
        raise FrameError(at, problem)
    return header


def _control(batch: memoryview, header: BatchHeader, at: int) -> ControlRecord | None:
    try:
        return read_control(batch, header)
    except RecordsError as problem:
        raise FrameError(at, str(problem)) from problem


def is_void(read: LogRead) -> bool:
    """True if the log was cut below the end of what was read: there may be other bytes by now."""
    return any(_is_cut(piece) for piece in read.slices)


def _is_cut(piece: LogSlice) -> bool:
    return piece.position + piece.length > piece.file.truncated_to


def begin_at(future: Log, log: Log, offset: int) -> None:
    """Empty a future log, and let it begin at ``offset``, with the producers whose batches in
    ``log`` are below: the copy has no batches that would make them. Raises DiskError.
    """
    _begin_with(future, log.producers.state_below(offset), offset)


def _begin_with(future: Log, state: ProducerState, offset: int) -> None:
    future.truncate_fully_and_start_at(offset)
    future.history.begin_with(state, offset)


def append_chunk(future: Log, chunk: Chunk, now_ms: int) -> None:
    """Append batches that continue a future log, in as few writes as possible. Raises DiskError,
    LogDamagedError.
    """
    if not chunk.infos:
        return
    if chunk.infos[0].first < future.log_end:
        # The log starts inside of this batch: so does the future log, once it has the batch.
        assert future.log_start == future.log_end, (future.log_start, future.log_end)
        first = chunk.infos[0].first
        _begin_with(future, future.producers.state_below(first), first)
    if chunk.controls:
        future.expect_room()  # for the index of aborted transactions
    view = memoryview(chunk.records)
    position = taken = 0
    while taken < len(chunk.infos):
        count = future.append_run(view[position:], chunk.infos[taken:], now_ms)
        for info, header in zip(
            chunk.infos[taken : taken + count], chunk.headers[taken : taken + count], strict=True
        ):
            if header.producer_id >= 0 or header.is_control:
                future.producers.replay(header, now_ms, chunk.controls.get(header.base_offset))
            position += info.size_bytes
        taken += count
    future.index_aborted()
