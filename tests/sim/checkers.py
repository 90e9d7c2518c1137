"""Invariants. Each checker takes plain values, never the node, and raises BrokenError.

A checker that cannot fail proves nothing: test_checkers.py gives each a history that it must
reject.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import BATCHES_KEPT, ProducedBatch, ProducerEntry
from tidemark.codec.record_batch import BatchHeader, crc_matches, iterate_headers
from tidemark.codec.records import Record, read_records
from tidemark.model.ids import NO_EPOCH

from sim.history import Bounds, PlainLog, Written


class BrokenError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


def require(holds: bool, invariant: str, detail: object = "") -> None:
    """Raise BrokenError unless ``holds``."""
    if not holds:
        raise BrokenError(invariant, str(detail))


def check_bounds(bounds: Bounds) -> None:
    """Check that log_start <= last_stable <= high_watermark <= log_end, and that no offset beyond
    the log end counts as synced.
    """
    start, stable, watermark, end, synced = bounds
    require(0 <= start <= stable <= watermark <= end, "bounds are in order", bounds)
    require(synced <= end, "the synced end is in the log", bounds)


def check_watermark(history: PlainLog, high_watermark: int) -> None:
    """Check that for readers the high watermark never goes back, except after a permitted loss."""
    if history.is_settled:
        require(
            high_watermark >= history.watermark_seen,
            "the high watermark never goes back",
            f"{history.topic_partition}: {high_watermark} after {history.watermark_seen}",
        )
    history.watermark_seen = max(history.watermark_seen, high_watermark)


class Fetched(NamedTuple):
    """Request and response of one fetch."""

    offset: int
    high_watermark: int
    records: bytes


def whole_batches(fetched: Fetched) -> list[tuple[BatchHeader, bytes]]:
    """Return the batches of a response; each must be whole and have a matching CRC."""
    found, end = [], 0
    for position, header in iterate_headers(fetched.records):
        end = position + header.size_bytes
        batch = fetched.records[position:end]
        require(
            crc_matches(memoryview(batch), header),
            "no torn or damaged batch is served",
            f"offset {header.base_offset}",
        )
        found.append((header, batch))
    require(
        end == len(fetched.records),
        "an answer holds whole batches",
        f"{len(fetched.records) - end} bytes from offset {fetched.offset} are none",
    )
    return found


def check_fetched(history: PlainLog, fetched: Fetched) -> int:
    """Check that a reader received what was written at its offset, in order, below the watermark.
    Return the offset of its next fetch.
    """
    expected = fetched.offset
    for header, batch in whole_batches(fetched):
        require(
            header.last_offset < fetched.high_watermark,
            "nothing beyond the high watermark is served",
            f"{header.last_offset} with watermark {fetched.high_watermark}",
        )
        gap = header.base_offset > expected and expected >= history.cleaned_end
        require(not gap, "no record is skipped", f"{expected}, got {header.base_offset}")
        require(
            header.last_offset >= expected, "offsets rise", f"{header.last_offset} < {expected}"
        )
        check_same(history, header, batch)
        expected = header.last_offset + 1
    return expected


def check_same(history: PlainLog, header: BatchHeader, batch: bytes) -> None:
    """Check that a batch is what was written at its offset; only compaction may remove records from
    it.
    """
    written = history.by_first.get(header.base_offset)
    if written is None:
        raise BrokenError("no record is invented", f"a batch at offset {header.base_offset}")
    if written.batch == batch:
        return
    require(
        header.base_offset < history.cleaned_end,
        "the same bytes at the same offset",
        f"offset {header.base_offset} of {history.topic_partition}",
    )
    was = set(map(plain_record, written.records))
    now = set(map(plain_record, read_records(memoryview(batch), header)))
    require(now <= was, "compaction only removes records", f"offset {header.base_offset}")


def plain_record(record: Record) -> tuple[int, int, bytes | None, bytes | None]:
    """Return offset, timestamp, key and value of a record; the workload sets no headers."""
    return record.offset, record.timestamp, record.key, record.value


class ReaderMemory:
    """Batches that one reader received, by offset: later reads must return the same ones.

    Independent of PlainLog, which records only what the node meant to write.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}

    def saw(self, header: BatchHeader) -> None:
        """Check one batch, identified by its CRC and last offset. Not for compacted topics."""
        now = (header.crc, header.last_offset)
        was = self._seen.setdefault(header.base_offset, now)
        require(was == now, "a reader sees no other bytes", f"at offset {header.base_offset}")

    def forget_from(self, offset: int) -> None:
        """Forget batches at and beyond ``offset``: a crash took them."""
        self._seen = {first: seen for first, seen in self._seen.items() if seen[1] < offset}


def check_sequences(headers: Iterable[BatchHeader]) -> None:
    """Check that in a log without gaps each producer's sequences have no repeat, gap or step back.

    The first sequence of a producer may have any value: earlier batches may have left the log.
    """
    known: dict[int, tuple[int, int]] = {}
    for header in headers:
        if header.producer_id < 0:
            continue
        epoch, expected = known.get(
            header.producer_id, (header.producer_epoch, header.base_sequence)
        )
        if header.producer_epoch > epoch:
            epoch, expected = header.producer_epoch, 0
        require(
            header.producer_epoch == epoch and header.base_sequence == expected,
            "sequences are in order, each once",
            f"producer {header.producer_id} e{header.producer_epoch} s{header.base_sequence}"
            f" at offset {header.base_offset}, expected e{epoch} s{expected}",
        )
        behind = (header.base_sequence + header.last_offset_delta + 1) % 2**31
        known[header.producer_id] = epoch, behind


def check_acknowledged(history: PlainLog, *, base_offset: int, asked: Sequence[int]) -> Written:
    """Check that an acknowledgement names the offset at which the batch is. ``asked``: producer id,
    epoch, sequence.
    """
    written = history.by_first.get(base_offset)
    if written is None:
        raise BrokenError("an acknowledged batch is in the log", f"offset {base_offset}")
    header = written.header
    got = (header.producer_id, header.producer_epoch, header.base_sequence)
    require(
        asked[0] < 0 or got == tuple(asked),
        "an answer names the batch that was sent",
        f"offset {base_offset} has {got}, asked {tuple(asked)}",
    )
    return written


def check_repeated(history: PlainLog, *, asked: Sequence[int]) -> None:
    """Check that a batch that is refused as a repetition was appended. ``asked``: producer id,
    epoch, sequence.
    """
    headers = (one.header for one in history.batches)
    require(
        any(
            (header.producer_id, header.producer_epoch, header.base_sequence) == tuple(asked)
            for header in headers
        ),
        "a batch that is refused as a repetition was appended",
        f"{history.topic_partition} never had {tuple(asked)}",
    )


class Recovered(NamedTuple):
    """State of one log after a restart."""

    log_start: int
    log_end: int
    first_base_offset: int
    producers: Sequence[ProducerEntry]
    epochs: LeaderEpochs


def check_recovered_after_kill(history: PlainLog, found: Recovered) -> None:
    """Check that nothing written is missing, acknowledged or not: the page cache survived."""
    torn = next((one.first for one in history.batches if one.is_damaged), history.log_end)
    require(
        found.log_end == torn,
        "kill -9 loses nothing",
        f"{history.topic_partition} ends at {found.log_end}, not {torn}",
    )
    require(
        found.log_start == min(history.log_start, found.log_end),
        "the log start survives kill -9",
        f"{history.topic_partition} starts at {found.log_start}, not {history.log_start}",
    )


def check_recovered_after_power_loss(history: PlainLog, found: Recovered) -> None:
    """Check that synced offsets and batches acknowledged under flush=group exist, and that no batch
    is torn.
    """
    what = f"{history.topic_partition} ends at {found.log_end}"
    require(
        found.log_end >= history.synced_end,
        "synced records survive power loss",
        f"{what}, synced to {history.synced_end}",
    )
    promised = history.acknowledged_end(promised=True)
    require(
        found.log_end >= promised,
        "flush=group keeps what it acknowledged",
        f"{what}, acknowledged to {promised}",
    )
    boundary = found.log_end == history.log_end or found.log_end in history.by_first
    require(boundary, "recovery cuts at a batch, and adds none", what)
    require(found.log_start <= max(history.log_start, 0), "the log start is not invented", what)


def check_producers(
    history: PlainLog, entries: Iterable[ProducerEntry], first_base_offset: int
) -> None:
    """Check that the producer table has the last batches of each producer with batches in the log.

    It may keep or lack batches that retention took; it must have no other batch.
    """
    known = {entry.producer_id: entry for entry in entries}
    for producer_id, (epoch, batches) in history.producers().items():
        must = [one for one in batches[-BATCHES_KEPT:] if one.base_offset >= first_base_offset]
        if history.cleaned_end:
            must = must[-1:]
        entry = known.pop(producer_id, None)
        if history.has_lost and batches[-1].base_offset < history.cleaned_end:
            continue  # compaction had only the last five batches, and a crash took those
        if entry is None:
            require(not must, "no producer is forgotten", f"{producer_id} has {must}")
            continue
        if _is_raised(entry, epoch, history):
            continue
        require(entry.producer_epoch == epoch, "producer epochs are kept", entry)
        got = list(entry.batches)
        if history.cleaned_end:
            # A batch that lost its latest record to compaction has another max timestamp.
            got, must, batches = (
                [one._replace(timestamp=0) for one in some] for some in (got, must, batches)
            )
        may_be_empty = not got and not must  # its batches are gone, and its epoch is known
        require(
            may_be_empty or (_in_order(batches, got) and set(must) <= set(got)),
            "the producer table is what the log says",
            f"producer {producer_id}: {got}, must {must}, wrote {batches[-8:]}",
        )
    invented = [one for one in known.values() if not _is_raised(one, NO_EPOCH, history)]
    require(not invented, "no producer is invented", invented)


def _is_raised(entry: ProducerEntry, epoch: int, history: PlainLog) -> bool:
    """Return True if a producer has an epoch above that of its batches, since the log has lost its
    batches of that one: all of its batches, if the others have NO_EPOCH. A snapshot as of the log's
    start may know it, and older epochs stay fenced: whoever wrote in the newer one had been given
    it. Nothing else of what was lost is known.
    """
    seen = history.epochs_seen.get(entry.producer_id, NO_EPOCH)
    return history.has_lost and epoch < entry.producer_epoch <= seen and not entry.batches


def _in_order(batches: list[ProducedBatch], some: Sequence[ProducedBatch]) -> bool:
    """Return True if ``some`` is a subsequence of ``batches`` that ends with their last batch."""
    return [one for one in batches if one in some] == list(some) and batches[-1:] == list(some[-1:])


def check_epochs(history: PlainLog, epochs: LeaderEpochs, log_start: int) -> None:
    """Check that each batch was written in the leader epoch that the epoch cache has for its
    offset.
    """
    epochs.check()
    for one in history.readable(log_start, history.log_end):
        offset = max(one.first, log_start)
        require(
            epochs.epoch_of(offset) == one.header.partition_leader_epoch,
            "leader epochs are kept",
            f"offset {offset}: {epochs.epoch_of(offset)}, not {one.header.partition_leader_epoch}",
        )


def check_last_values(history: PlainLog, records: Iterable[Record], log_start: int) -> None:
    """Check that compaction kept the last record of each key. If that record is a tombstone, it may
    be removed after all others of its key.
    """
    last: dict[bytes | None, Record] = {}
    for one in history.readable(log_start, history.log_end):
        last.update((record.key, record) for record in one.records if record.offset >= log_start)
    got = {record.key: record for record in records if record.offset >= log_start}
    for key, record in last.items():
        if record.value is None and key not in got and record.offset < history.cleaned_end:
            continue
        found = got.get(key)
        require(
            found is not None and plain_record(found) == plain_record(record),
            "compaction keeps each key's last value",
            f"key {key!r}: {found}, not {record}",
        )


def check_damage_told(
    told: Sequence[str], sizes: Mapping[str, int], kept: Mapping[str, int]
) -> None:
    """Check that the reader of damage below the recovery point reports it and that no byte is cut.

    ``sizes``: file sizes before the damage; ``kept``: afterwards.
    """
    require(bool(told), "damage below the recovery point is told", sizes)
    shorter = {path: kept.get(path, 0) for path, size in sizes.items() if kept.get(path, 0) < size}
    require(not shorter, "damaged synced bytes are never cut", shorter)
