"""Small logs on a MemDisk: hand-made batches, tiny segments, restarts of every kind."""

import struct
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from broker.storage.log import AppendInfo, Log, LogRead, LogSlice
from broker.storage.log_manager import LogManager
from crc32c import crc32c
from tidemark.codec.record_batch import HEADER_BYTES, read_header
from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk

ORDERS = TopicPartition("orders", 0)
ORDERS_ID = TopicId(bytes(15) + b"\x01")
NOW = 1_700_000_000_000
TINY = replace(
    topic_config({}), segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=1_000
)


class NearlyFull(MemDisk):
    """It has no room left for files with this name."""

    no_room_for = "-"

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        if path.endswith(self.no_room_for):
            raise DiskFullError(path, "No space left on device")
        super().replace_whole(path, content, sync=sync)


def make_batch(base_offset: int, records: int, body_bytes: int = 20, **fields: int) -> bytes:
    """A batch with a right header and CRC around junk instead of records."""
    timestamp = fields.get("timestamp", NOW)
    covered = struct.pack(
        ">hiqqqhii",
        fields.get("attributes", 0),
        records - 1,
        timestamp,
        timestamp,
        fields.get("producer_id", -1),
        fields.get("producer_epoch", -1),
        fields.get("sequence", -1),
        records,
    ) + bytes(index % 251 for index in range(body_bytes))
    head = struct.pack(
        ">qiiBI", base_offset, len(covered) + 9, fields.get("epoch", 0), 2, crc32c(covered)
    )
    assert len(head) + len(covered) == HEADER_BYTES + body_bytes
    return head + covered


def remove_due(manager: LogManager, now_ms: int) -> None:
    """Remove what is due, as the broker's loop and its thread do."""
    begun = manager.begin_removals(now_ms)
    if begun is not None:
        begun.run()
        manager.finish_removals(begun)


def upkeep(
    manager: LogManager, now_ms: int, high_watermarks: Mapping[TopicPartition, int]
) -> list[Log]:
    """Give every log its turn; return those whose start moved."""
    starts = {log: log.log_start for log in manager.logs.values()}
    kept = manager.upkeep(now_ms, lambda log: high_watermarks.get(log.topic_partition, 0))
    return [log for log in kept if log.log_start != starts[log]]


def append(log: Log, records: int = 1, body_bytes: int = 20, **fields: int) -> bytes:
    """Append one batch as the broker does; return its bytes."""
    batch = make_batch(log.log_end, records, body_bytes, **fields)
    header = read_header(batch)
    info = AppendInfo(
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.partition_leader_epoch,
        len(batch),
    )
    log.append([batch], info, NOW)
    if header.producer_id >= 0:
        log.producers.appended(header, header.base_offset, NOW)
    return batch


def opened(disk: MemDisk, config: TopicConfig = TINY, **changes: Any) -> LogManager:
    """Start a broker on a disk with any content."""
    settings: dict[str, Any] = {
        "cluster_id": "c",
        "broker_id": 1,
        "directory_id": "d",
        "boot_id": "boot-1",
        "now_ms": NOW,
        "config_of": lambda _: config,
    }
    return LogManager.open(disk, **(settings | changes))


def new_log(
    config: TopicConfig = TINY, disk: MemDisk | None = None
) -> tuple[MemDisk, LogManager, Log]:
    """Create an empty log on a disk of its own."""
    disk = MemDisk() if disk is None else disk
    manager = opened(disk, config)
    return disk, manager, manager.create(ORDERS, ORDERS_ID, config, NOW)


def flush(manager: LogManager, *, now_ms: int = NOW + 10**9) -> None:
    """Run a whole flush round, and write its checkpoint."""
    begun = manager.begin_flush(only_group=False, now_ms=now_ms)
    if begun is not None:
        begun.run()
        manager.finish_flush(begun)
    manager.checkpoint({one: log.log_end for one, log in manager.logs.items()})


def completed(search: Generator[None, None, LogSlice | None]) -> LogSlice | None:
    """Return what a search in parts finds."""
    while True:
        try:
            next(search)
        except StopIteration as ended:
            found: LogSlice | None = ended.value
            return found


def bytes_of(read: LogRead) -> bytes:
    """Return the bytes that a reader would get."""
    return b"".join(piece.file.read_at(piece.position, piece.length) for piece in read.slices)


@dataclass
class PlainLog:
    """A log as a plain list of batches."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(first offset, last offset, bytes)."""
    log_start: int = 0
    synced_end: int = 0

    @property
    def log_end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else self.log_start

    def add(self, batch: bytes) -> None:
        header = read_header(batch)
        self.batches.append((header.base_offset, header.last_offset, batch))

    def readable(self, offset: int, end: int) -> list[bytes]:
        return [batch for first, last, batch in self.batches if last >= offset and first < end]

    def cut_to(self, end: int) -> None:
        self.batches = [one for one in self.batches if one[1] < end]


def is_prefix_of_whole_batches(got: bytes, batches: Sequence[bytes], bytes_max: int) -> bool:
    """True if ``got`` is the first few of ``batches``: at least one, and as many as fit."""
    if not batches:
        return got == b""
    whole = b""
    for batch in batches:
        if whole and len(whole) + len(batch) > bytes_max:
            break
        whole += batch
        if got == whole:
            return True
    return False
