import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.coordinator_fields import DamagedRecordError, NewerRecordError
from tidemark.codec.share_records import (
    ShareSnapshotRecord,
    ShareSnapshotValue,
    ShareUpdateRecord,
    ShareUpdateValue,
    decode,
    encode,
)
from tidemark.codec.share_transaction_records import (
    EndNotice,
    TransactionEndRecord,
    TransactionEndValue,
    decode_pending,
    encode_pending,
)
from tidemark.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    StateEpoch,
    TransactionKey,
)

KEY = SharePartitionKey("jobs", TopicId(b"t" * 16), 3)
NINE = TransactionKey(ProducerId(9), ProducerEpoch(4))
PENDING = PendingBatch(Offset(5), Offset(7), DeliveryState.ACKNOWLEDGED, 2, NINE)
END = TransactionEndRecord(
    ProducerId(9), TransactionEndValue(open_from=5, commits=True, ended_at=1_000, held=(KEY,))
)
OFFSETS = st.integers(0, 2**63 - 1).map(Offset)
BATCHES = st.builds(
    PendingBatch,
    OFFSETS,
    OFFSETS,
    st.sampled_from([DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVING, DeliveryState.ARCHIVED]),
    st.integers(0, 2**15 - 1),
    st.builds(
        TransactionKey,
        st.integers(0, 2**63 - 1).map(ProducerId),
        st.integers(0, 2**15 - 1).map(ProducerEpoch),
    ),
    st.sampled_from([DeliveryState.ACQUIRED, DeliveryState.ARCHIVING]),
)


@given(st.lists(BATCHES, max_size=4).map(tuple))
def test_pending_batches_come_back_as_they_went(pending: tuple[PendingBatch, ...]) -> None:
    assert decode_pending(encode_pending(pending)) == pending


def test_a_state_without_them_has_no_field() -> None:
    update = ShareUpdateValue(snapshot_epoch=1, leader_epoch=LeaderEpoch(2), start_offset=Offset(3))
    _, value = encode(ShareUpdateRecord(KEY, update))
    assert value == bytes.fromhex("0000 00000001 00000002 0000000000000003 01 00")


def test_snapshots_and_updates_have_them() -> None:
    update = ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=LeaderEpoch(2),
        start_offset=Offset(3),
        delivery_complete_count=4,
        pending=(PENDING,),
    )
    snapshot = ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=StateEpoch(2),
        leader_epoch=LeaderEpoch(3),
        start_offset=Offset(4),
        create_timestamp=5,
        write_timestamp=6,
        pending=(PENDING,),
    )
    for record in (ShareUpdateRecord(KEY, update), ShareSnapshotRecord(KEY, snapshot)):
        assert decode(*encode(record)) == record


def test_the_end_of_a_transaction_has_these_bytes() -> None:
    key, value = encode(END)
    assert key == bytes.fromhex("03e8 0000000000000009")
    held = b"\x05jobs" + b"t" * 16 + bytes.fromhex("00000003 00")
    assert value == bytes.fromhex("0000 00000005 01 00000000000003e8 02") + held + b"\x00"
    assert decode(key, value) == END


def test_earlier_ends_are_a_tagged_field() -> None:
    earlier = (EndNotice(ProducerEpoch(3), commits=False, ended_at=999, held=(KEY,)),)
    value = TransactionEndValue(open_from=5, commits=True, ended_at=1_000, earlier=earlier)
    key, content = encode(TransactionEndRecord(ProducerId(9), value))
    held = b"\x05jobs" + b"t" * 16 + bytes.fromhex("00000003 00")
    notices = bytes.fromhex("02 0003 00 00000000000003e7 02") + held + b"\x00"
    fields = b"\x01\x00" + bytes([len(notices)]) + notices
    assert content == bytes.fromhex("0000 00000005 01 00000000000003e8 01") + fields
    assert decode(key, content) == TransactionEndRecord(ProducerId(9), value)


def test_a_tombstone_forgets_it() -> None:
    tombstone = TransactionEndRecord(ProducerId(9), None)
    assert decode(*encode(tombstone)) == tombstone


def test_a_later_version_is_refused() -> None:
    key, _ = encode(END)
    with pytest.raises(NewerRecordError, match="ShareTransactionEnd"):
        decode(key, bytes.fromhex("0001"))


def test_a_pending_release_is_damage() -> None:
    content = encode_pending([PENDING._replace(outcome=DeliveryState.AVAILABLE)])
    with pytest.raises(DamagedRecordError, match="pending for state 0"):
        decode_pending(content)
