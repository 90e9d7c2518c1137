"""Admission: the quick look at a batch against the rules one by one; producers and owners."""

from typing import Any

from broker.core.admission import Admission
from broker.core.batch_rules import (
    AppendPlan,
    PartitionLimits,
    Refusal,
    Repeated,
    structure_refused,
    timestamps_refused,
)
from broker.core.producers import Ended, ProducerTable
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.control_record import ControlRecord, EndTxnMarker, OwnerRecord
from tidemark.codec.record_batch import BatchHeader
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topic_configs import topic_config
from unit.broker.core.replicated import SIZE, WALL, header


def admission(**configs: str) -> Admission:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    return Admission(PartitionLimits.of(topic_config(settings)), ProducerTable())


def append(made: Admission, batch: BatchHeader, control: ControlRecord | None = None) -> None:
    first = Offset(batch.base_offset)
    plan = AppendPlan(first, first, WALL, LeaderEpoch(5), SIZE, batch, -1, control)
    made.appended(plan, WALL)


NEAR = st.sampled_from([-1, 0, 1, 2, 3])
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": NEAR,
        "magic": st.integers(0, 3),
        "batch_length": st.sampled_from([SIZE - 12, SIZE, 0, -1]),
        "attributes": st.integers(0, 255),
        "last_offset_delta": NEAR,
        "record_count": st.sampled_from([-1, 0, 1, 2, 5, 6]),
        "base_timestamp": st.sampled_from([-1, 0, WALL, WALL + 10**12]),
        "max_timestamp": st.sampled_from([-1, 0, WALL, WALL + 10**12]),
    },
)


@given(HEADERS, st.sampled_from([10, 60, 61, SIZE]), st.booleans())
def test_the_quick_look_refuses_as_the_rules_do(
    changes: dict[str, Any],
    size: int,
    by_broker: bool,
) -> None:
    made = admission(message_timestamp_type="LogAppendTime" if by_broker else "CreateTime")
    batch = header()._replace(**changes)
    by_rules = structure_refused(batch, size, made.limits)
    if by_rules is None and not by_broker:
        by_rules = timestamps_refused(batch, WALL, made.limits)
    assert made.judge(batch, size, WALL) == by_rules


def test_a_batch_that_is_in_the_log_is_repeated_with_its_offsets() -> None:
    made = admission()
    batch = header()._replace(producer_id=7, producer_epoch=0, base_sequence=0)
    assert made.judge(batch, SIZE, WALL) is None
    append(made, batch._replace(base_offset=40))
    assert made.judge(batch, SIZE, WALL) == Repeated(40, 40, -1)


def test_a_marker_that_is_in_the_log_has_ended_its_transaction() -> None:
    made = admission()
    marker = EndTxnMarker(commits=True, coordinator_epoch=1)
    batch = header()._replace(producer_id=7, producer_epoch=3, attributes=0x30)
    assert made.judge_internal(batch, marker, bumped=True) is None
    append(made, batch, marker)
    assert isinstance(made.judge_internal(batch, marker, bumped=True), Ended)
    late = made.judge_internal(batch._replace(producer_epoch=2), marker, bumped=True)
    assert isinstance(late, Refusal)
    assert late.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_former_owner_is_fenced() -> None:
    made = admission()
    append(made, header()._replace(attributes=0x20), OwnerRecord(4))
    assert made.owner_refused(4) is None
    fenced = made.owner_refused(3)
    assert fenced is not None
    assert fenced.error_code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
