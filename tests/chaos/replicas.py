"""Whether the replicas on disk are the same bytes, once all brokers have stopped in full ISRs, and
whether each index of aborted transactions says what the log says.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from broker.storage.txn_index import decode_aborted
from chaos.history import Partition
from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import iterate_headers


class Aborted(NamedTuple):
    """A transaction: its producer, its first record's offset, its marker's."""

    producer_id: int
    first: int
    last: int


class Log(NamedTuple):
    """A replica's batches from its first segment to its last: their count, end and digest."""

    batches: int
    end: int
    digest: str

    def __str__(self) -> str:
        return f"{self.batches} batches to offset {self.end}, sha256 {self.digest[:12]}"


def read_log(directory: Path) -> Log:
    """All segments of one replica; where they were rolled makes no difference."""
    batches = end = 0
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.log")):
        content = memoryview(path.read_bytes())
        for position, header in iterate_headers(content):
            batches += 1
            end = header.base_offset + header.last_offset_delta + 1
            digest.update(content[position : position + header.size_bytes])
    return Log(batches, end, digest.hexdigest())


def differences(logs: Mapping[Partition, Mapping[int, Log]]) -> list[str]:
    """One line a partition whose replicas are not the same."""
    return [
        f"{partition}: " + "; ".join(f"broker {number} {log}" for number, log in by_broker.items())
        for partition, by_broker in logs.items()
        if len(set(by_broker.values())) > 1
    ]


def read_replicas(
    data: Mapping[int, Path], partitions: Sequence[Partition]
) -> dict[Partition, dict[int, Log]]:
    """Every replica of every partition; ``data`` maps brokers to their log directories."""
    return {
        partition: {number: read_log(path / str(partition)) for number, path in data.items()}
        for partition in partitions
    }


def aborted_in_log(directory: Path) -> list[Aborted]:
    """The aborted transactions of one replica, by the batches of its segments."""
    found: list[Aborted] = []
    began: dict[int, int] = {}
    for path in sorted(directory.glob("*.log")):
        content = memoryview(path.read_bytes())
        for position, header in iterate_headers(content):
            if not header.is_control:
                if header.is_transactional:
                    began.setdefault(header.producer_id, header.base_offset)
                continue
            marker = read_control(content[position : position + header.size_bytes], header)
            if isinstance(marker, EndTxnMarker):
                first = began.pop(header.producer_id, None)
                if first is not None and not marker.commits:
                    found.append(Aborted(header.producer_id, first, header.base_offset))
    return found


def aborted_in_index(directory: Path) -> list[Aborted]:
    """The same by its indexes, which readers of committed records are served from."""
    return [
        Aborted(*txn[:3])
        for path in sorted(directory.glob("*.txnindex"))
        for txn in decode_aborted(str(path), path.read_bytes())
    ]


def misindexed(data: Mapping[int, Path], partitions: Sequence[Partition]) -> list[str]:
    """One line a replica whose index and log tell different aborted transactions."""
    found = []
    for partition in partitions:
        for number, path in data.items():
            in_log = aborted_in_log(path / str(partition))
            in_index = aborted_in_index(path / str(partition))
            if in_log != in_index:
                only_log = sorted(set(in_log) - set(in_index))
                only_index = sorted(set(in_index) - set(in_log))
                found.append(
                    f"{partition} at broker {number}: {len(in_log)} in the log, {len(in_index)} in"
                    f" the index; only in the log: {only_log[:5]}; only in the index:"
                    f" {only_index[:5]}"
                )
    return found
