"""Check of a replica's transactions against its log: the open ones, and the index of aborted ones
that serves readers of committed records.
"""

from typing import NamedTuple, cast

from broker.shell.partitions.hosted import HostedPartition
from broker.storage.segment import TXN_INDEX
from broker.storage.txn_index import TxnIndex
from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import iterate_headers
from tidemark.storage.mem_disk import MemDisk

from sim.checkers import require
from sim.cluster.parts import readable
from sim.cluster.watching import records_of


class Aborted(NamedTuple):
    """An aborted transaction: its producer, the offsets of its first record and of its marker."""

    producer_id: int
    first: int
    last: int


def told_by_log(content: memoryview) -> tuple[dict[int, int], list[Aborted]]:
    """Return the first offsets of the open transactions by producer id, and the aborted ones in the
    order of their markers, of a log from its start.
    """
    first_offsets: dict[int, int] = {}
    aborted: list[Aborted] = []
    for position, header in iterate_headers(content):
        if not header.is_control:
            if header.is_transactional:
                first_offsets.setdefault(header.producer_id, header.base_offset)
            continue
        marker = read_control(content[position : position + header.size_bytes], header)
        if isinstance(marker, EndTxnMarker):
            first = first_offsets.pop(header.producer_id, None)
            if first is not None and not marker.commits:
                aborted.append(Aborted(header.producer_id, first, header.base_offset))
    return first_offsets, aborted


def check_transactions(number: int, hosted: HostedPartition) -> None:
    """Compare open and aborted transactions with the log, in memory and in the index files.

    A log that was compacted, cut at its start or damaged is left out: it does not have them all.
    """
    log = hosted.log
    if log.config.is_compacted or log.log_start or log.damage is not None:
        return
    where = f"{hosted.topic_partition} at broker {number}"
    first_offsets, aborted = told_by_log(memoryview(records_of(hosted, 0, log.log_end)))
    known = {one: log.producers.txns.first_of(one) for one in first_offsets}
    require(
        known == first_offsets and len(log.producers.txns) == len(first_offsets),
        "open transactions are known by what is in the log",
        f"{where}: {log.producers.txns._first_offsets}, the log says {first_offsets}",
    )
    indexed = [Aborted(*txn[:3]) for txn in log.history.aborted_between(0, log.log_end)]
    with readable(cast("MemDisk", hosted.manager.disk)):
        files = [
            TxnIndex.load(hosted.manager.disk, segment.stem + TXN_INDEX).aborted
            for segment in log._segments.segments
        ]
    # A file that found no space gets what it lacks before the log counts as synced.
    written = [Aborted(*txn[:3]) for aborted in files for txn in aborted]
    synced = [txn for txn in indexed if txn.last < log.synced_end]
    require(
        written == indexed[: len(written)] and len(written) >= len(synced),
        "the files of aborted transactions have what is known of them",
        f"{where}: {files}, known are {indexed}",
    )
    require(
        indexed == aborted,
        "aborted transactions are indexed as the log says",
        f"{where}: {indexed}, the log says {aborted}",
    )
