from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.errors import BufferFullError, ClientClosedError, MessageTooLargeError
from tidemark.client.producer.accumulator import Accumulator, Limits, record_bytes
from tidemark.client.producer.batches import Delivery, PendingBatch
from tidemark.client.producer.partition_queue import Refusal
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

LIMITS = Limits(
    batch_bytes=100,
    linger_ms=10,
    buffer_bytes_max=300,
    record_bytes_max=200,
    delivery_timeout_ms=1_000,
    idempotent=False,
)
ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def add(accumulator: Accumulator, partition: TopicPartition, size: int, now: float) -> Delivery:
    queue, record = accumulator.queue(partition), (0, None, b"x", ())
    delivery = accumulator.append_open(queue, record, size)
    return delivery or accumulator.append(queue, record, size, now)


def drain(accumulator: Accumulator, now: float) -> list[PendingBatch]:
    taken = []
    while ready := accumulator.ready(now):
        taken += [queue.take(now, 1) for queue in ready]
    return taken


@pytest.mark.feature("C04", "C05")
def test_a_full_batch_goes_at_once_and_the_rest_lingers() -> None:
    accumulator = Accumulator(LIMITS)
    for _ in range(3):
        add(accumulator, ONE, 40, now=0)
    assert [len(batch.records) for batch in drain(accumulator, 0)] == [2]
    assert accumulator.next_due(0) == 10
    assert [len(batch.records) for batch in drain(accumulator, 10)] == [1]


def test_partitions_are_batched_apart() -> None:
    accumulator = Accumulator(LIMITS)
    add(accumulator, ONE, 40, now=0)
    add(accumulator, TWO, 40, now=5)
    assert [batch.partition for batch in drain(accumulator, 10)] == [ONE]
    assert [batch.partition for batch in drain(accumulator, 15)] == [TWO]


@pytest.mark.feature("C04")
def test_memory_is_bounded_and_freed_by_acknowledgements() -> None:
    accumulator = Accumulator(LIMITS)
    delivery = add(accumulator, ONE, 150, now=0)
    add(accumulator, ONE, 150, now=0)
    with pytest.raises(BufferFullError):
        add(accumulator, TWO, 1, now=0)
    accumulator.on_acknowledged(drain(accumulator, 0)[0], 40, -1)
    assert accumulator.has_room(150)
    assert delivery.result().offset == 40


def test_a_record_that_can_never_be_sent_is_refused() -> None:
    with pytest.raises(MessageTooLargeError):
        add(Accumulator(LIMITS), ONE, 201, now=0)


def test_a_flush_sends_what_lingers() -> None:
    accumulator = Accumulator(LIMITS)
    delivery = add(accumulator, ONE, 40, now=0)
    assert len(accumulator.begin_flush()) == 1
    assert len(drain(accumulator, 0)) == 1
    accumulator.end_flush()
    assert not delivery.done()


def test_who_waits_for_memory_sends_what_lingers() -> None:
    accumulator = Accumulator(LIMITS)
    add(accumulator, ONE, 40, now=0)
    accumulator.short_of_memory()
    assert len(drain(accumulator, 0)) == 1


def test_records_that_were_never_sent_expire() -> None:
    accumulator = Accumulator(LIMITS)
    delivery = add(accumulator, ONE, 40, now=0)
    assert not accumulator.expire(999)
    assert len(accumulator.expire(1_000)) == 1
    assert delivery.exception() is not None
    assert accumulator.statistics().records_failed == 1
    accumulator.check()


def test_the_sender_is_woken_only_for_what_its_timer_does_not_cover() -> None:
    accumulator = Accumulator(LIMITS)
    add(accumulator, ONE, 40, now=0)
    assert accumulator.wakes_sender
    accumulator.wakes_sender, accumulator.timer_set = False, True
    add(accumulator, TWO, 40, now=1)
    assert not accumulator.wakes_sender
    add(accumulator, TWO, 80, now=1)
    assert accumulator.wakes_sender


def test_a_failure_nobody_looked_at_is_kept_once() -> None:
    accumulator = Accumulator(LIMITS)
    for partition in (ONE, TWO):
        delivery = add(accumulator, partition, 90, now=0)
    for batch in drain(accumulator, 10):
        accumulator.on_refused(batch, Refusal(ErrorCode.INVALID_RECORD), 0)
    assert delivery.exception() is not None
    assert [batch.partition for batch in accumulator.take_unobserved_failures()] == [ONE]
    assert not accumulator.take_unobserved_failures()


def test_closing_fails_what_is_left() -> None:
    accumulator = Accumulator(LIMITS)
    delivery = add(accumulator, ONE, 40, now=0)
    accumulator.abandon(ClientClosedError(ErrorCode.NETWORK_EXCEPTION, "closed"))
    assert isinstance(delivery.exception(), ClientClosedError)
    assert accumulator.buffered_bytes == 0
    accumulator.check()


def test_an_idempotent_queue_waits_for_its_identity() -> None:
    accumulator = Accumulator(LIMITS._replace(idempotent=True))
    add(accumulator, ONE, 40, now=0)
    assert not drain(accumulator, 10)
    accumulator.adopt(ProducerIdentity(7, 0))
    assert drain(accumulator, 10)[0].producer_id == 7


def test_a_record_is_counted_with_its_headers() -> None:
    assert record_bytes(b"key", b"value", ()) == 12 + 8
    assert record_bytes(None, None, [("é", b"12")]) == 12 + 6 + 2 + 2


@dataclass
class PlainAccumulator:
    """Slow and obvious: lists of record sizes a partition; a batch ends where the next record would
    overflow it.
    """

    open: dict[TopicPartition, tuple[float, list[int]]] = field(default_factory=dict)
    full: list[tuple[TopicPartition, list[int]]] = field(default_factory=list)
    sent: list[tuple[TopicPartition, list[int]]] = field(default_factory=list)

    def used(self) -> int:
        batches = [*self.full, *self.sent, *((p, sizes) for p, (_, sizes) in self.open.items())]
        return sum(sum(sizes) for _, sizes in batches)

    def add(self, partition: TopicPartition, size: int, now: float) -> bool:
        if self.used() + size > LIMITS.buffer_bytes_max:
            return False
        started, sizes = self.open.get(partition, (now, []))
        if sizes and sum(sizes) + size > LIMITS.batch_bytes:
            self.full.append((partition, sizes))
            started, sizes = now, []
        self.open[partition] = (started, [*sizes, size])
        return True

    def drain(self, now: float) -> list[tuple[TopicPartition, list[int]]]:
        for partition, (started, sizes) in list(self.open.items()):
            if sum(sizes) >= LIMITS.batch_bytes or now >= started + LIMITS.linger_ms:
                self.full.append((partition, sizes))
                del self.open[partition]
        out, self.full = self.full, []
        self.sent += out
        return out


steps = st.one_of(
    st.tuples(st.sampled_from([ONE, TWO]), st.integers(1, 120), st.just("add")),
    st.tuples(st.none(), st.integers(0, 12), st.sampled_from(["drain", "acknowledge"])),
)


@pytest.mark.feature("C04", "C05")
@given(st.lists(steps, max_size=60))
def test_batches_agree_with_the_plain_twin(
    script: list[tuple[TopicPartition | None, int, str]],
) -> None:
    accumulator, plain, now = Accumulator(LIMITS), PlainAccumulator(), 0.0
    in_flight: list[PendingBatch] = []
    for partition, number, action in script:
        if action == "add" and partition is not None:
            taken = plain.add(partition, number, now)
            assert taken == accumulator.has_room(number)
            if taken:
                add(accumulator, partition, number, now)
        elif action == "drain":
            now += number
            got = drain(accumulator, now)
            expected = plain.drain(now)
            assert sorted((batch.partition, batch.size_bytes) for batch in got) == sorted(
                (each, sum(sizes)) for each, sizes in expected
            )
            in_flight += got
        if action == "acknowledge" or len(in_flight) >= 5:
            for batch in in_flight:
                accumulator.on_acknowledged(batch, 0, -1)
            in_flight, plain.sent = [], []
        accumulator.check()
        assert accumulator.buffered_bytes == plain.used()
