"""Partition: every refusal of admit, offsets, and where the high watermark stands."""

from typing import Any

import pytest
from broker.core.leader_epochs import LeaderEpochs
from broker.core.partition import (
    AppendPlan,
    LogState,
    Partition,
    PartitionLimits,
    Refusal,
    Repeated,
    Role,
)
from broker.core.producers import ProducerTable
from tidemark.codec.control_record import EndTxnMarker
from tidemark.codec.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, LeaderEpoch, TopicId
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition
from unit.broker.core.replicated import follower, lead_in

NOW = 1_700_000_000_000
ME = BrokerId(1)
SIZE = 100


def header(**changes: Any) -> BatchHeader:
    """A good batch of three records and 100 bytes."""
    good = BatchHeader(
        base_offset=0,
        batch_length=SIZE - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )
    return good._replace(**changes)


def partition(*, lead: bool = True, **configs: str) -> Partition:
    """An empty partition that this broker leads in epoch 5."""
    made = Partition(
        TopicPartition("orders", 0),
        TopicId(bytes(16)),
        ME,
        limits=PartitionLimits.of(
            topic_config({name.replace("_", "."): v for name, v in configs.items()})
        ),
        state=LogState(log_start=0, log_end=0, synced_end=0, high_watermark=-1),
        epochs=LeaderEpochs(),
        producers=ProducerTable(),
    )
    if lead:
        assert lead_in(made, 5, (ME,), (ME,))
    return made


def admit(made: Partition, batch: BatchHeader, *, size: int = SIZE, acks: int = 1) -> Any:
    return made.admit(batch, size, acks=acks, now_ms=NOW)


def append(made: Partition, batch: BatchHeader, *, acks: int = 1) -> int:
    plan = admit(made, batch, acks=acks)
    assert isinstance(plan, AppendPlan), plan
    gained = made.appended(plan, NOW)
    made.check()
    return gained


REFUSED = {
    "magic 1": ({"magic": 1}, ErrorCode.INVALID_RECORD),
    "two batches": ({"batch_length": 50}, ErrorCode.INVALID_RECORD),
    "cut short": ({"batch_length": 500}, ErrorCode.INVALID_RECORD),
    "no records": ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
    "negative count": ({"record_count": -5}, ErrorCode.INVALID_RECORD),
    "count and delta": ({"last_offset_delta": 9}, ErrorCode.INVALID_RECORD),
    "control batch": ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
    "transactional without producer": ({"attributes": 0x10}, ErrorCode.INVALID_RECORD),
    "not verified": (
        {"attributes": 0x10, "producer_id": 9, "producer_epoch": 0, "base_sequence": 0},
        ErrorCode.INVALID_TXN_STATE,
    ),
    "append time set by client": ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
    "delete horizon": ({"attributes": 0x40}, ErrorCode.INVALID_RECORD),
    "codec 5": ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "far ahead": ({"max_timestamp": NOW + 3_600_001}, ErrorCode.INVALID_TIMESTAMP),
    "producer without sequence": (
        {"producer_id": 9, "producer_epoch": 0},
        ErrorCode.INVALID_RECORD,
    ),
    "negative producer": (
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_batch_is_refused_and_changes_nothing(case: str) -> None:
    changes, code = REFUSED[case]
    made = partition()
    refused = admit(made, header(**changes))
    assert isinstance(refused, Refusal), refused
    assert refused.error_code is code
    assert made.log_end == 0


def test_a_batch_gets_the_next_offsets_and_the_leader_epoch() -> None:
    made = partition()
    append(made, header())
    plan = admit(made, header())
    assert plan[:5] == (3, 5, NOW, 5, SIZE)


def test_too_large_a_batch_is_refused() -> None:
    made = partition(max_message_bytes="99")
    assert admit(made, header()).error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_more_records_than_bytes_can_hold_are_refused_unless_compressed() -> None:
    claims = header(record_count=6, last_offset_delta=5)  # 39 bytes behind the header
    refused = admit(partition(), claims)
    assert isinstance(refused, Refusal)
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert isinstance(admit(partition(), claims._replace(attributes=4)), AppendPlan)


def test_an_offline_partition_takes_nothing() -> None:
    made = partition(lead=False)
    assert admit(made, header()).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_an_expected_leader_epoch_is_checked(epoch: int, code: ErrorCode) -> None:
    made = partition()
    refused = made.admit(header(), SIZE, acks=1, leader_epoch_expected=epoch, now_ms=NOW)
    assert isinstance(refused, Refusal)
    assert refused.error_code is code
    assert isinstance(
        made.admit(header(), SIZE, acks=1, leader_epoch_expected=5, now_ms=NOW), AppendPlan
    )


def test_acks_must_be_known_and_enough_replicas_in_sync() -> None:
    made = partition(min_insync_replicas="2")
    assert admit(made, header(), acks=2).error_code is ErrorCode.INVALID_REQUIRED_ACKS
    # One replica cannot have two in sync: more than there are is not asked for.
    assert isinstance(admit(made, header(), acks=-1), AppendPlan)
    lead_in(made, 6, (ME, BrokerId(2)), (ME,))
    assert admit(made, header(), acks=-1).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert isinstance(admit(made, header(), acks=1), AppendPlan)


def test_timestamps_of_minus_one_are_taken() -> None:
    made = partition(message_timestamp_before_max_ms="1000")
    assert isinstance(admit(made, header(base_timestamp=-1, max_timestamp=-1)), AppendPlan)
    old = admit(made, header(base_timestamp=NOW - 1_001))
    assert old.error_code is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_overrules_the_producers_clock() -> None:
    made = partition(message_timestamp_type="LogAppendTime")
    plan = admit(made, header(base_timestamp=1, max_timestamp=NOW * 2))
    assert (plan.max_timestamp, plan.log_append_time_ms) == (NOW, NOW)


@pytest.mark.feature("K04", "K05", "K06")
def test_sequences_accept_repeat_and_refuse() -> None:
    made = partition()
    first = header(producer_id=7, producer_epoch=0, base_sequence=0)
    append(made, first)
    assert admit(made, first) == Repeated(0, 2, -1)
    gap = admit(made, first._replace(base_sequence=4))
    assert gap.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(made, first._replace(base_sequence=3))
    append(made, first._replace(producer_epoch=1))
    fenced = admit(made, first._replace(base_sequence=6))
    assert fenced.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.feature("Y10")
def test_flush_group_moves_the_watermark_only_when_synced() -> None:
    made = partition(flush="group")
    assert append(made, header()) == 0
    assert append(made, header()) == 0
    assert not made.commitment.acknowledgeable(3, 1)
    assert not made.commitment.acknowledgeable(3, -1)
    assert made.synced(3) == SIZE
    assert made.high_watermark == 3
    assert made.commitment.acknowledgeable(3, 1)
    assert not made.commitment.acknowledgeable(6, 1)
    assert made.synced(6) == SIZE  # else nobody would be woken for the second batch
    made.check()


def test_flush_os_makes_bytes_readable_at_once() -> None:
    made = partition()
    assert append(made, header()) == SIZE
    assert made.high_watermark == made.last_stable == 3


def test_a_failed_append_leaves_no_trace_and_may_fence() -> None:
    made = partition()
    plan = admit(made, header())
    assert made.append_failed(plan, fenced=False).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (made.log_end, made.role) == (0, Role.LEADER)
    made.append_failed(plan, fenced=True)
    assert made.role is Role.FAILED


def test_a_failed_disk_is_out_of_service_whatever_the_image_says() -> None:
    made = partition()
    made.become_failed()
    assert not lead_in(made, 9, (ME,), (ME,))
    made.become_offline(BrokerId(2), LeaderEpoch(9))
    assert made.role is Role.FAILED
    assert admit(made, header()).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    refused = made.epoch_refused(-1)
    assert refused is not None
    assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_older_leadership_is_not_taken_up() -> None:
    made = partition()
    assert not lead_in(made, 4, (ME,), (ME,))
    made.become_offline(BrokerId(2), LeaderEpoch(9))
    assert not lead_in(made, 8, (ME,), (ME,))
    assert lead_in(made, 9, (ME,), (ME,))


def test_the_high_watermark_starts_within_the_log() -> None:
    made = Partition(
        TopicPartition("orders", 0),
        TopicId(bytes(16)),
        ME,
        limits=PartitionLimits.of(topic_config({})),
        state=LogState(log_start=10, log_end=20, synced_end=15, high_watermark=3),
        epochs=LeaderEpochs(),
        producers=ProducerTable(),
    )
    made.check()
    assert made.high_watermark == 10
    made.log_start_moved(12)
    made.check()
    assert made.high_watermark == 12


@pytest.mark.feature("M02")
@pytest.mark.parametrize("leads", [True, False])
def test_ended_transactions_are_forgotten_though_nobody_reads(leads: bool) -> None:
    one = partition() if leads else follower()
    txn = {"attributes": TRANSACTIONAL_BIT, "producer_id": 7, "producer_epoch": 0}
    marker = EndTxnMarker(commits=True, coordinator_epoch=1)
    for _ in range(50):
        record = header(base_offset=one.log_end, partition_leader_epoch=5, **txn)
        end = record._replace(
            base_offset=one.log_end + 3,
            attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
            last_offset_delta=0,
            record_count=1,
        )
        for batch, control in ((record, None), (end, marker)):
            plan = (
                one.admit_own(batch, SIZE, control=control)
                if leads
                else one.admit_replicated(batch, SIZE, 5, None, control)
            )
            assert isinstance(plan, AppendPlan)
            one.appended(plan, NOW)
        one.leader_told(one.log_end)
    assert len(one.producers.txns.ended()) <= 1
    assert one.last_stable == one.high_watermark == 200
