"""How fast rows of Arrow batches become Kafka records: ``python -m bench.spark_encode``.

Without Spark, sockets or brokers: the vectorised encoder of the sink against the plain encoder that
the native producer uses for single records. CPU seconds of one core, best of several turns.
"""

import random
import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from tidemark.codec.records import build_batch
from tidemark_spark.sink.encode import Columns, Encoder, Limits

PARTITIONS: Final = 12
TURNS: Final = 5
ROWS: Final = {100: 40_000, 1_024: 20_000}
LIMITS: Final = Limits(batch_bytes=512 * 1024, record_bytes_max=1024 * 1024)


def rows_of(value_bytes: int, *, keyed: bool) -> Columns:
    """Random values, keys of 16 bytes, timestamps 1 ms apart."""
    count = ROWS[value_bytes]
    dice = random.Random(7)
    stamps = pa.array(range(1_700_000_000_000, 1_700_000_000_000 + count), pa.timestamp("ms"))
    return Columns(
        "t",
        None,
        pa.array([dice.randbytes(16) for _ in range(count)], pa.binary()) if keyed else None,
        pa.array([dice.randbytes(value_bytes) for _ in range(count)], pa.binary()),
        stamps.cast(pa.timestamp("us")),
        None,
    )


def best_seconds(work: Callable[[], object]) -> float:
    """The quickest of TURNS."""
    quickest = float("inf")
    for _ in range(TURNS):
        begun = time.process_time()
        work()
        quickest = min(quickest, time.process_time() - begun)
    return quickest


def plain(rows: Columns) -> Callable[[], object]:
    """The producer's way: rows as Python objects, one after the other, in batches of 500."""
    keys = rows.key.to_pylist() if rows.key is not None else [None] * len(rows.value)
    values = rows.value.to_pylist()
    records = [
        (1_700_000_000_000 + number, key, value, ())
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return lambda: [build_batch(records[at : at + 500]) for at in range(0, len(records), 500)]


def vectorised(rows: Columns) -> Callable[[], object]:
    """The sink's way, hashing, sorting by partition and cutting into batches included."""
    return lambda: Encoder(lambda _topic: PARTITIONS, limits=LIMITS, now_ms=lambda: 0).encode(rows)


def main() -> None:
    """Print one line a case."""
    print(
        f"{'value':>6} {'key':>4}  {'plain rows/s':>13}  {'arrow rows/s':>13}  {'MB/s':>6}  times"
    )
    for value_bytes, count in ROWS.items():
        for keyed in (False, True):
            rows = rows_of(value_bytes, keyed=keyed)
            slow = count / best_seconds(plain(rows))
            fast = count / best_seconds(vectorised(rows))
            key = 16 if keyed else 0
            rate = fast * (value_bytes + key) / 1e6
            print(
                f"{value_bytes:>6} {key:>4}  {slow:>13,.0f}  {fast:>13,.0f}  {rate:>6,.0f}"
                f"  {fast / slow:.1f}"
            )


if __name__ == "__main__":
    main()
