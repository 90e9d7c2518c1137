"""What share groups cost a partition leader in decisions alone: CPU time and memory of one
share-partition without log, network and coordinator.
"""

import random
import time
import tracemalloc
from typing import Final

from bench.report import Row
from broker.core.share.acknowledgement import AcknowledgementBatch
from broker.core.share.acquisition import LogBatch, LogRead, Wanted
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import SharePartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import SharePartitionKey, StateRead

GROUP: Final = "share groups: CPU of decisions"
KEY: Final = SharePartitionKey("bench", TopicId(bytes(16)), 0)
EVERYTHING: Final = 1 << 30
ACCEPT: Final = (1,)
CYCLES: Final = 10_000
IN_FLIGHT: Final = 20
CYCLE_US_MAX: Final = 150.0
LONG_TO_SHORT_MAX: Final = 2.0
RECORDS: Final = 100_000
RECORD_BYTES_MAX: Final = 400.0
KEYS: Final = 100


def bench_share_partitions() -> list[Row]:
    """Whole batches, short and long; single records at random; records in order of their keys."""
    short, long = whole_batches(10), whole_batches(100_000)
    whole = Row(GROUP, "batch: read, acquire, acknowledge, write")
    whole.extra = {"us_10_records": short, "us_100_000_records": long}
    whole.bound = f"<{CYCLE_US_MAX:.0f} us, however long the batch"
    whole.held = long < CYCLE_US_MAX and long < LONG_TO_SHORT_MAX * short
    us, peak_bytes = single_records(is_key_ordered=False)
    single = Row(GROUP, f"{RECORDS:,} records acknowledged at random")
    single.extra = {"us_a_record": us, "peak_bytes_a_record": peak_bytes}
    single.bound = f"<{RECORD_BYTES_MAX:.0f} B a record"
    single.held = peak_bytes < RECORD_BYTES_MAX
    keyed_us, keyed_bytes = single_records(is_key_ordered=True)
    keyed = Row(GROUP, f"the same in order of {KEYS} keys")
    keyed.extra = {"us_a_record": keyed_us, "peak_bytes_a_record": keyed_bytes}
    return [whole, single, keyed]


def leader(settings: ShareSettings) -> SharePartition:
    """An active share-partition that starts at offset 0."""
    share = SharePartition(KEY, LeaderEpoch(1), settings)
    share.begin_load()
    read = StateRead(KEY, ErrorCode.NONE, start_offset=Offset(0))
    share.loaded(read, log_start=Offset(0), reset_start=Offset(0))
    return share


def whole_batches(records: int) -> float:
    """Microseconds for one batch from its read to the end of its write."""
    share = leader(ShareSettings(records_max=EVERYTHING))
    wanted = Wanted("member", records, records)
    held: list[tuple[Offset, Offset]] = []
    started = time.process_time()
    for number in range(CYCLES):
        now = InstantMs(number)
        plan = share.plan_read(now, "member")
        assert plan is not None
        first, end = plan.first_offset, Offset(plan.first_offset + records)
        batch = LogBatch(first, Offset(end - 1))
        acquired = share.acquire(LogRead(first, end, (batch,)), wanted, now)
        held += [(first, last) for first, last, _ in acquired]
        if len(held) > IN_FLIGHT:
            first, last = held.pop(0)
            share.acknowledge("member", (AcknowledgementBatch(first, last, ACCEPT),), number, now)
            write(share, now)
        share.next_deadline()
        share.take_wakeup()
    return (time.process_time() - started) / CYCLES * 1e6


def single_records(*, is_key_ordered: bool) -> tuple[float, float]:
    """Microseconds and peak of memory for each of many records, one write for ten of them."""
    us = acknowledge_at_random(is_key_ordered=is_key_ordered)
    tracemalloc.start()
    acknowledge_at_random(is_key_ordered=is_key_ordered)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return us, peak_bytes / RECORDS


def acknowledge_at_random(*, is_key_ordered: bool) -> float:
    """Microseconds a record."""
    share = leader(ShareSettings(records_max=RECORDS, is_key_ordered=is_key_ordered))
    now = InstantMs(0)
    keys = {Offset(number): number % KEYS for number in range(RECORDS)} if is_key_ordered else None
    read = LogRead(
        Offset(0), Offset(RECORDS), (LogBatch(Offset(0), Offset(RECORDS - 1), keys=keys),)
    )
    order = [Offset(number) for number in range(RECORDS)]
    random.Random(1).shuffle(order)
    started = time.process_time()
    share.acquire(read, Wanted("member", RECORDS, RECORDS), now)
    for number, offset in enumerate(order):
        share.acknowledge("member", (AcknowledgementBatch(offset, offset, ACCEPT),), number, now)
        if number % 10 == 9:
            write(share, now)
    assert share.window.start == RECORDS
    return (time.process_time() - started) / RECORDS * 1e6


def write(share: SharePartition, now: InstantMs) -> None:
    """A write that is answered at once."""
    share.next_write(now)
    share.written(ErrorCode.NONE, now)
