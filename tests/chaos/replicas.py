"""Whether the replicas on disk are the same bytes, once all brokers have stopped in full ISRs."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.history import Partition
from tidemark.codec.record_batch import iterate_headers


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
