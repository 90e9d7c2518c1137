"""The scrubber: the whole log is read at the given rate; damage is reported once, and confirmed."""

from collections.abc import Sequence

import pytest
from broker.storage.scrubber import (
    PASS_PAUSE_MS,
    Scrubber,
    ScrubOutcome,
    ScrubSegment,
    ScrubTask,
    scrub_range,
)
from tidemark.codec.records import build_batch
from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import Damage

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 2)


class Bytes:
    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(self.content[position : position + length])


def batches(count: int, base_offset: int = 0) -> list[bytes]:
    return [
        build_batch([(0, b"k", b"v" * 39, ())], base_offset=base_offset + number)
        for number in range(count)
    ]


def segment(partition: TopicPartition, base: int, end: int) -> ScrubSegment:
    return ScrubSegment(partition, base, f"{partition}/{base:020d}.log", end)


def test_a_range_ends_at_a_batch_boundary() -> None:
    log = batches(10)
    size = len(log[0])
    whole = segment(ORDERS, 0, 10 * size)
    file = Bytes(b"".join(log))
    assert scrub_range(file, ScrubTask(whole, 0, 0, 1)) == ScrubOutcome(size, 1, None)
    middle = ScrubTask(whole, 2 * size, 2, 2 * size + 1)
    assert scrub_range(file, middle) == ScrubOutcome(5 * size, 5, None)
    assert scrub_range(file, ScrubTask(whole, 0, 0, 10**6)) == ScrubOutcome(10 * size, 10, None)


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (-1, "CRC does not match"),
        (16, "magic 66 is not 2"),
        (8, "does not fit"),
        (7, "do not follow"),  # base offset: outside the CRC
    ],
)
def test_one_flipped_bit_is_found(at: int, what: str) -> None:
    log = batches(4, base_offset=64)
    size = len(log[0])
    file = Bytes(b"".join(log))
    file.content[3 * size + at if at >= 0 else 4 * size - 1] ^= 64
    outcome = scrub_range(file, ScrubTask(segment(ORDERS, 64, 4 * size), 0, 64, 10**6))
    assert outcome.damage is not None
    assert what in outcome.damage.what
    assert outcome.damage[:4] == (ORDERS, "orders-0/00000000000000000064.log", 3 * size, 67)


class Logs:
    """Logs with these segments."""

    def __init__(self, *segments: ScrubSegment) -> None:
        self.segments = segments

    def partitions(self) -> set[TopicPartition]:
        return {one.topic_partition for one in self.segments}

    def segments_of(self, topic_partition: TopicPartition) -> list[ScrubSegment]:
        return sorted(one for one in self.segments if one.topic_partition == topic_partition)


def walk(
    scrubber: Scrubber, segments: Sequence[ScrubSegment], steps: int
) -> list[tuple[str, int, int]]:
    """Return the start of each task, as if every range were good and of the requested length."""
    seen, now = [], 0
    for _ in range(steps):
        task = None
        while task is None:
            task = scrubber.next_task(Logs(*segments), now)
            now += 1
        position = min(task.start + task.length_max, task.segment.end)
        seen.append((str(task.segment.topic_partition), task.segment.base_offset, task.start))
        outcome = ScrubOutcome(position, task.segment.base_offset + position, None)
        assert scrubber.finished(task, outcome, now) is None
    return seen


def test_all_segments_are_visited_in_turn() -> None:
    segments = [segment(PAYMENTS, 0, 50), segment(ORDERS, 100, 30), segment(ORDERS, 0, 90)]
    scrubber = Scrubber(bytes_per_second=10**6, range_bytes=40)
    assert walk(scrubber, segments, 8) == [
        ("orders-0", 0, 0),
        ("orders-0", 0, 40),
        ("orders-0", 0, 80),
        ("orders-0", 100, 0),
        ("payments-2", 0, 0),
        ("payments-2", 0, 40),
        ("orders-0", 0, 0),
        ("orders-0", 0, 40),
    ]
    assert scrubber.rounds == 1


def test_segments_may_come_and_go() -> None:
    scrubber = Scrubber(bytes_per_second=10**6, range_bytes=40)
    walk(scrubber, [segment(ORDERS, 0, 90), segment(ORDERS, 100, 30)], 1)
    assert walk(scrubber, [segment(ORDERS, 100, 30)], 1) == [("orders-0", 100, 0)]
    assert walk(scrubber, [segment(ORDERS, 100, 70)], 1) == [("orders-0", 100, 30)]
    # Compacted to less than was checked already: another file.
    assert walk(scrubber, [segment(ORDERS, 100, 20)], 1) == [("orders-0", 100, 0)]
    assert scrubber.next_task(Logs(), 10**6) is None
    assert scrubber.next_task(Logs(segment(ORDERS, 0, 0)), 2 * 10**6) is None


def test_the_rate_is_kept() -> None:
    scrubber = Scrubber(bytes_per_second=1_000, range_bytes=500)
    logs = Logs(segment(ORDERS, 0, 10**6))
    task = scrubber.next_task(logs, 0)
    assert task is not None
    scrubber.finished(task, ScrubOutcome(600, 6, None), now_ms=10)
    assert scrubber.next_task(logs, 609) is None
    assert scrubber.pause_ms(609) == 1
    assert scrubber.next_task(logs, 610) == ScrubTask(logs.segments[0], 600, 6, 500)


def test_a_pass_is_followed_by_a_pause() -> None:
    scrubber = Scrubber(bytes_per_second=10**9)
    logs = Logs(segment(ORDERS, 0, 90), segment(PAYMENTS, 0, 90))
    for _ in logs.segments:
        task = scrubber.next_task(logs, 0)
        assert task is not None
        scrubber.finished(task, ScrubOutcome(90, 9, None), 0)
    assert scrubber.next_task(logs, 0) is None
    assert (scrubber.rounds, scrubber.pause_ms(0)) == (1, PASS_PAUSE_MS)
    assert scrubber.next_task(logs, PASS_PAUSE_MS) == ScrubTask(logs.segments[0], 0, 0, 4 * 2**20)


def test_a_partition_that_is_gone_does_not_end_the_pass() -> None:
    scrubber = Scrubber(bytes_per_second=10**6, range_bytes=40)
    others = [segment(ORDERS, 0, 90), segment(TopicPartition("prices", 0), 0, 10)]
    assert walk(scrubber, [segment(PAYMENTS, 0, 90), *others], 4)[-1] == ("payments-2", 0, 0)
    assert walk(scrubber, others, 1) == [("prices-0", 0, 0)]
    assert scrubber.rounds == 0


def test_damage_is_certain_only_in_one_sweep_from_the_start() -> None:
    scrubber = Scrubber(bytes_per_second=10**6, range_bytes=40)
    segments = [segment(ORDERS, 0, 90), segment(PAYMENTS, 0, 10)]
    walk(scrubber, segments, 1)
    damage = Damage(ORDERS, "orders-0/0.log", 50, 5, "CRC does not match")
    task = scrubber.next_task(Logs(*segments), 10)
    assert task is not None
    assert scrubber.finished(task, ScrubOutcome(50, 5, damage), 10) is None
    sweep = scrubber.next_task(Logs(*segments), 10)
    assert sweep == ScrubTask(segments[0], 0, 0, 90)
    assert scrubber.finished(sweep, ScrubOutcome(50, 5, damage), 11) == damage
    assert walk(scrubber, segments, 1) == [("payments-2", 0, 0)]


def test_small_segments_are_not_checked_without_a_pause() -> None:
    scrubber = Scrubber(bytes_per_second=1_000_000)
    small = Logs(segment(ORDERS, 0, 100), segment(ORDERS, 10, 100))
    task = scrubber.next_task(small, 0)
    assert task is not None
    scrubber.finished(task, ScrubOutcome(100, 1, None), 0)
    assert scrubber.next_task(small, 200) is None
    assert scrubber.next_task(small, 300) is not None
