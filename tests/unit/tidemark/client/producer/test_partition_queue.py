from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.client.errors import (
    ClientError,
    DuplicateSequenceNumber,
    InvalidSequenceNumber,
    MessageTooLargeError,
    error_for,
)
from tidemark.client.producer.batches import Delivery, PendingBatch
from tidemark.client.producer.partition_queue import PRODUCER_EPOCH_MAX, PartitionQueue, Refusal
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.memory_transport import MemoryLog

PARTITION = TopicPartition("t", 0)
OUT_OF_ORDER = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
RECORDS = 3
LOST = Refusal(ErrorCode.NETWORK_EXCEPTION)


def queue_with(count: int, *, idempotent: bool = True) -> PartitionQueue:
    """A queue with so many sealed batches of two records; their values are their numbers."""
    queue = PartitionQueue(PARTITION, idempotent=idempotent)
    if idempotent:
        queue.adopt(ProducerIdentity(7, 0))
    add(queue, count)
    return queue


def add(queue: PartitionQueue, count: int) -> None:
    for _ in range(count):
        batch = queue.open_batch(0)
        batch.records += [(0, None, b"%d" % batch.number, ()), (0, None, b"x", ())]
        queue.seal()


def proven(count: int) -> PartitionQueue:
    """As ``queue_with``, with one batch acknowledged before: several may be in flight."""
    queue = queue_with(count + 1)
    queue.on_acknowledged(queue.take(0, 1), 0, -1)
    return queue


def sequences(queue: PartitionQueue) -> list[tuple[int, int]]:
    return [(batch.producer_epoch, batch.sequence) for batch in queue.in_flight]


def take_all(queue: PartitionQueue) -> list[PendingBatch]:
    taken = []
    while queue.can_send(1e9):
        taken.append(queue.take(1e9, 1))
    return taken


@pytest.mark.feature("K02")
def test_sequences_count_records_from_zero() -> None:
    queue = queue_with(1)
    first = queue.take(0, 1)
    assert (first.producer_id, first.producer_epoch, first.sequence) == (7, 0, 0)
    queue.on_acknowledged(first, 0, -1)
    add(queue, 1)
    assert queue.take(0, 1).sequence == 2


def test_one_batch_alone_until_the_broker_knows_the_producer_then_five() -> None:
    queue = queue_with(9)
    (first,) = take_all(queue)
    queue.on_acknowledged(first, 0, -1)
    assert len(take_all(queue)) == 5
    assert not queue.can_send(0)


def test_nothing_goes_to_a_new_leader_while_the_old_one_has_a_batch() -> None:
    queue = proven(2)
    batch = queue.take(0, 1)
    assert not queue.may_go_to(2)
    queue.on_acknowledged(batch, 2, -1)
    assert queue.may_go_to(2)


@pytest.mark.feature("K07")
def test_a_lost_batch_is_sent_again_first_and_alone_under_its_own_sequence() -> None:
    queue = proven(3)
    first, second = queue.take(0, 1), queue.take(0, 1)
    queue.on_refused(first, LOST, 50)
    assert not queue.can_send(100)
    queue.on_refused(second, OUT_OF_ORDER, 60)
    assert not queue.can_send(10)
    again = queue.take(100, 1)
    assert (again, again.sequence) == (first, 2)
    assert not queue.can_send(100)
    queue.on_acknowledged(again, 2, -1)
    assert queue.take(100, 1) is second
    assert not queue.can_send(100), "the third waits for the last retry"


@pytest.mark.feature("K05")
def test_a_gap_that_is_not_ours_fails_the_batch_and_starts_a_new_epoch() -> None:
    queue = proven(2)
    batch = queue.take(0, 1)
    queue.on_refused(batch, OUT_OF_ORDER, 0)
    assert isinstance(batch.error, InvalidSequenceNumber)
    queue.take(0, 1)
    assert sequences(queue) == [(1, 0)]


@pytest.mark.feature("K06")
def test_a_duplicate_beyond_the_brokers_memory_fails_and_leaves_no_gap() -> None:
    queue = proven(2)
    batch = queue.take(0, 1)
    queue.on_refused(batch, Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), 0)
    assert isinstance(batch.error, DuplicateSequenceNumber)
    queue.take(0, 1)
    assert sequences(queue) == [(0, 4)]


def test_behind_a_refused_batch_the_others_are_numbered_anew() -> None:
    queue = proven(3)
    first, second, third = take_all(queue)
    queue.on_refused(first, Refusal(ErrorCode.INVALID_RECORD, "no key", "broker 1"), 0)
    assert "no key at broker 1" in str(first.error)
    queue.on_refused(second, OUT_OF_ORDER, 0)
    assert not queue.can_send(0)
    queue.on_refused(third, OUT_OF_ORDER, 0)
    assert take_all(queue) == [second, third]
    assert sequences(queue) == [(1, 0), (1, 2)]


def test_a_batch_that_may_be_written_keeps_its_number_until_that_is_certain() -> None:
    queue = proven(3)
    first, second, third = take_all(queue)
    queue.on_refused(first, Refusal(ErrorCode.INVALID_RECORD), 0)
    queue.on_refused(second, LOST, 0)
    queue.on_refused(third, OUT_OF_ORDER, 0)
    assert queue.take(0, 1) is second
    assert sequences(queue) == [(0, 4)]
    queue.on_refused(second, OUT_OF_ORDER, 0)
    assert take_all(queue) == [second, third]
    assert sequences(queue) == [(1, 0), (1, 2)]


def test_a_fenced_identity_is_not_adopted_again() -> None:
    queue = proven(2)
    queue.on_refused(queue.take(0, 1), Refusal(ErrorCode.INVALID_PRODUCER_EPOCH), 0)
    assert queue.wants_identity
    assert not queue.can_send(0)
    assert not queue.may_adopt(ProducerIdentity(7, 0))
    queue.adopt(ProducerIdentity(8, 0))
    assert queue.take(0, 1).producer_id == 8


def test_a_used_up_epoch_asks_for_a_new_identity() -> None:
    queue = PartitionQueue(PARTITION, idempotent=True)
    queue.adopt(ProducerIdentity(7, PRODUCER_EPOCH_MAX))
    add(queue, 1)
    queue.on_refused(queue.take(0, 1), Refusal(ErrorCode.INVALID_RECORD), 0)
    assert queue.wants_identity


def test_expired_in_flight_fails_at_once_and_keeps_its_place_until_answered() -> None:
    queue = proven(2)
    late = queue.take(0, 1)
    assert late in queue.expire(0)
    assert late.error is not None
    queue.on_acknowledged(late, 2, -1)
    queue.check()
    assert queue.is_idle


def test_without_idempotence_retries_keep_their_order() -> None:
    queue = queue_with(3, idempotent=False)
    first, second, third = take_all(queue)
    queue.on_refused(second, LOST, 0)
    queue.on_refused(first, LOST, 0)
    queue.on_acknowledged(third, 4, -1)
    assert queue.take(0, 1) is first
    assert first.sequence == -1


TOO_LARGE = Refusal(ErrorCode.MESSAGE_TOO_LARGE, "over 1 MB")


@pytest.mark.parametrize(("idempotent", "expected"), [(True, [2, 3, 4]), (False, [-1] * 3)])
def test_a_batch_that_is_too_large_is_sent_in_parts_under_its_sequence_numbers(
    idempotent: bool, expected: list[int]
) -> None:
    queue = queue_with(3, idempotent=idempotent)
    queue.on_acknowledged(queue.take(0, 1), 0, -1)
    first, second = take_all(queue)
    queue.on_refused(first, TOO_LARGE, 50)
    queue.on_refused(second, OUT_OF_ORDER if idempotent else LOST, 50)
    queue.check()
    sent = []
    for offset in (2, 3, 4):
        sent.append(queue.take(100, 1))
        queue.on_acknowledged(sent[-1], offset, -1)
    assert sent == [*first.parts, second]
    assert [batch.sequence for batch in sent] == expected
    assert (first.resolved, first.error, first.base_offset) == (True, None, 2)


def test_one_record_that_is_too_large_fails_and_the_others_go_on() -> None:
    queue = proven(1)
    batch = queue.take(0, 1)
    queue.on_refused(batch, TOO_LARGE, 0)
    first, second = batch.parts
    queue.on_refused(queue.take(0, 1), TOO_LARGE, 0)
    assert isinstance(first.error, MessageTooLargeError)
    assert queue.take(0, 1) is second
    queue.on_refused(second, OUT_OF_ORDER, 0)
    assert queue.take(0, 1) is second
    assert sequences(queue) == [(1, 0)]
    queue.on_acknowledged(second, 5, -1)
    assert batch.error is first.error


def test_a_batch_that_was_reported_late_is_not_split() -> None:
    queue = proven(1)
    batch = queue.take(0, 1)
    queue.expire(0)
    queue.on_refused(batch, TOO_LARGE, 0)
    assert queue.is_idle


REFUSALS = {
    5: LOST,
    6: Refusal(ErrorCode.NOT_ENOUGH_REPLICAS),
    7: Refusal(ErrorCode.INVALID_RECORD),
    10: TOO_LARGE,
}


class Exchange:
    """A producer's queue, a leader that follows Kafka's rules, and a network that does what the
    script says.
    """

    def __init__(self) -> None:
        self.queue = PartitionQueue(PARTITION, idempotent=True)
        self.queue.adopt(ProducerIdentity(7, 0))
        self.log = MemoryLog()
        self.network: deque[PendingBatch] = deque()
        self.batches: list[PendingBatch] = []

    def run(self, script: list[int]) -> None:
        for action in script:
            self.act(action)
            self.queue.check()
        while not self.queue.is_idle or self.network:
            if self.queue.can_send(1e9):
                self.network.append(self.queue.take(1e9, 1))
            self.deliver()

    def act(self, action: int) -> None:
        if action == 0:
            self.batches.append(self.queue.open_batch(0))
            first = RECORDS * self.batches[-1].number
            self.batches[-1].records += [
                (0, None, b"%d" % value, ()) for value in range(first, first + RECORDS)
            ]
            self.queue.seal()
        elif action <= 2 and self.queue.can_send(1e9):
            self.network.append(self.queue.take(1e9, 1))
        elif action == 3 and self.network:
            self.deliver()
        elif action == 4 and self.network:
            self.deliver(answered=False)
        elif action in REFUSALS and self.network:
            self.refuse(REFUSALS[action])
        elif action == 8:
            self.network.rotate(-1)
        elif action == 9:
            self.queue.expire(0)

    def refuse(self, refusal: Refusal) -> None:
        may_be_written = self.network[0].failures > 0
        if refusal is not TOO_LARGE or not may_be_written:
            self.queue.on_refused(self.network.popleft(), refusal, 0)

    def deliver(self, *, answered: bool = True) -> None:
        if not self.network:
            return
        batch = self.network.popleft()
        outcome = self.log.append(batch.encode(0, None))
        if not answered:
            self.queue.on_refused(batch, LOST, 0)
        elif outcome.error_code:
            self.queue.on_refused(batch, Refusal(outcome.error_code), 0)
        else:
            self.queue.on_acknowledged(batch, outcome.base_offset, -1)


@pytest.mark.feature("K04", "K05", "K06", "K07", "K08")
@settings(max_examples=100)
@given(st.lists(st.integers(0, 10), max_size=80))
def test_whatever_the_network_does_records_are_there_once_and_in_order(script: list[int]) -> None:
    exchange = Exchange()
    exchange.run(script)
    written = [int(record.value or b"-1") for record in exchange.log.records()]
    assert written == sorted(set(written)), "twice, or out of order"
    assert not any(isinstance(b.error, DuplicateSequenceNumber) for b in exchange.batches)
    for batch in exchange.batches:
        for index, delivery in enumerate(Delivery(batch, one) for one in range(RECORDS)):
            if delivery.exception() is None:
                assert written[delivery.result().offset] == RECORDS * batch.number + index


def transactional(identity: ProducerIdentity = ProducerIdentity(7, 3)) -> PartitionQueue:  # noqa: B008
    queue = PartitionQueue(PARTITION, idempotent=True, transactional=True)
    queue.renew(identity)
    return queue


def test_a_batch_given_up_ends_sending_until_the_next_transaction() -> None:
    queue = transactional()
    add(queue, 2)
    first = queue.take(0, 1)
    queue.on_refused(first, Refusal(ErrorCode.INVALID_TXN_STATE), 0)
    assert not queue.can_send(10), "the epoch is the coordinator's to raise"
    assert [batch.error is None for batch in queue.cut(failure())] == [False]
    queue.renew(ProducerIdentity(7, 4))
    add(queue, 1)
    again = queue.take(10, 1)
    assert (again.producer_epoch, again.sequence, again.transactional) == (4, 0, True)


def test_a_cut_queue_awaits_what_is_in_flight_and_retries_nothing() -> None:
    queue = transactional()
    add(queue, 2)
    first = queue.take(0, 1)
    queue.cut(failure())
    assert not queue.is_idle
    queue.on_refused(first, Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0)
    assert queue.is_idle


def failure() -> ClientError:
    return error_for(ErrorCode.OPERATION_NOT_ATTEMPTED, "aborted")
