"""How fast fetched batches become Arrow columns, against the record-by-record decoder, without
Spark: ``PYTHONPATH=tests python -m bench.spark_decode``.

Both start from a fetch answer's bytes and check the checksums. The floor is what a Python data
source would do otherwise: ``read_records``, then rows of Python objects into Arrow arrays.
"""

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
from tidemark.client.consumer.fetched_chunk import FetchedChunk, ReadOptions
from tidemark.client.consumer.range_reader import OffsetRange, raw_batches
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import build_batch, read_records
from tidemark.model.topics import TopicPartition
from tidemark_spark.source.decode import decode, grouped
from tidemark_spark.source.schema import SOURCE_FIELDS

PARTITION: Final = TopicPartition("orders", 0)
ANSWER_BYTES: Final = 8 * 1024 * 1024
ROUNDS: Final = 5
SCHEMA: Final = pa.schema(SOURCE_FIELDS)


class Case(NamedTuple):
    """Records of about ``value_bytes`` in batches of about ``batch_bytes``."""

    value_bytes: int
    batch_bytes: int
    compression: int


CASES: Final = (
    Case(100, 16 * 1024, 0),
    Case(1024, 16 * 1024, 0),
    Case(100, 1024 * 1024, 0),
    Case(1024, 1024 * 1024, 0),
    Case(1024, 1024 * 1024, 4),
)


def answer_of(case: Case) -> tuple[bytes, int]:
    """What a fetch gives, and how many records are in it. Lengths vary by a fifth."""
    dice = random.Random(7)
    per_batch = max(1, case.batch_bytes // case.value_bytes)
    parts: list[bytes] = []
    offset = 0
    text = dice.randbytes(4 * case.value_bytes).hex().encode()
    for _ in range(max(1, ANSWER_BYTES // (per_batch * case.value_bytes))):
        records = []
        for number in range(per_batch):
            length = int(case.value_bytes * dice.uniform(0.8, 1.2))
            at = dice.randrange(len(text) - length)
            key = b"user-%07d" % dice.randrange(10**6)
            records.append((1_700_000_000_000 + number, key, text[at : at + length], ()))
        parts.append(build_batch(records, base_offset=offset, compression=case.compression))
        offset += per_batch
    return b"".join(parts), offset


def by_columns(answer: bytes, count: int) -> int:
    """What the data source does."""
    chunk = FetchedChunk(PARTITION, memoryview(answer), ReadOptions())
    batches = raw_batches(OffsetRange(PARTITION, 0, count), chunk)
    return sum(decode(group, PARTITION, SCHEMA).num_rows for group in grouped(batches))


def by_records(answer: bytes, count: int) -> int:
    """One Python object for each record and field."""
    del count
    rows = 0
    for position, header in iterate_headers(answer):
        batch = memoryview(answer)[position : position + header.size_bytes]
        records = read_records(batch, header)
        pa.RecordBatch.from_arrays(
            [
                pa.array([record.key for record in records], pa.binary()),
                pa.array([record.value for record in records], pa.binary()),
                pa.array([PARTITION.topic] * len(records)),
                pa.array([PARTITION.partition] * len(records), pa.int32()),
                pa.array([record.offset for record in records]),
                pa.array([record.timestamp * 1_000 for record in records]),
                pa.array([0] * len(records), pa.int32()),
            ],
            names=[field.name for field in SOURCE_FIELDS],
        )
        rows += len(records)
    return rows


def seconds(work: Callable[[bytes, int], int], answer: bytes, count: int) -> float:
    """The best of some rounds, of one core."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        assert work(answer, count) == count
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    """One line a case."""
    print("value   batch     codec   columns                    records                  times")
    for case in CASES:
        answer, count = answer_of(case)
        fast, slow = (seconds(work, answer, count) for work in (by_columns, by_records))
        megabytes = count * case.value_bytes / 1e6
        print(
            f"{case.value_bytes:>5}  {case.batch_bytes:>7}  {case.compression:>5}  "
            f"{count / fast:>11,.0f}/s {megabytes / fast:>6,.0f} MB/s  "
            f"{count / slow:>11,.0f}/s {megabytes / slow:>6,.0f} MB/s  {slow / fast:>5.1f}"
        )


if __name__ == "__main__":
    main()
