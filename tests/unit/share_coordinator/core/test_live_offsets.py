from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from share_coordinator.core.live_offsets import LiveKey, LiveOffsets, key_of
from tidemark.codec.share_group_records import (
    ShareGroupMemberMetadataRecord,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataRecord,
    ShareGroupMetadataValue,
)
from tidemark.codec.share_records import (
    ShareRecord,
    ShareSnapshotRecord,
    ShareSnapshotValue,
    ShareUpdateRecord,
    ShareUpdateValue,
)
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import SharePartitionKey, StateEpoch
from unit.broker.core.groups.consumer.worlds import topic_id

KEYS = [SharePartitionKey("g", topic_id(1), partition) for partition in range(3)]
SNAPSHOT = ShareSnapshotValue(
    snapshot_epoch=0,
    state_epoch=StateEpoch(0),
    leader_epoch=LeaderEpoch(0),
    start_offset=Offset(0),
    create_timestamp=0,
    write_timestamp=0,
)
UPDATE = ShareUpdateValue(snapshot_epoch=0, leader_epoch=LeaderEpoch(0), start_offset=Offset(0))
MEMBER = ShareGroupMemberMetadataValue(None, "", "", ())

records: st.SearchStrategy[ShareRecord] = st.one_of(
    st.builds(ShareSnapshotRecord, st.sampled_from(KEYS), st.sampled_from([None, SNAPSHOT])),
    st.builds(ShareUpdateRecord, st.sampled_from(KEYS), st.just(UPDATE)),
    st.builds(
        ShareGroupMetadataRecord, st.just("g"), st.sampled_from([None, ShareGroupMetadataValue(1)])
    ),
    st.builds(
        ShareGroupMemberMetadataRecord,
        st.just("g"),
        st.sampled_from("ab"),
        st.sampled_from([None, MEMBER]),
    ),
)


def plain_needed_from(log: list[ShareRecord]) -> int:
    """Slow and obvious: the first record that no later one replaces."""
    for offset, record in enumerate(log):
        if isinstance(record, ShareUpdateRecord) or record.value is None:
            continue
        later = [one for one in log[offset + 1 :] if not isinstance(one, ShareUpdateRecord)]
        if all(key_of(one) != key_of(record) for one in later):
            return offset
    return len(log)


@given(st.lists(records, max_size=25))
def test_offsets_agree_with_their_plain_twin(log: list[ShareRecord]) -> None:
    offsets = LiveOffsets()
    for offset, record in enumerate(log):
        offsets.note(record, Offset(offset))
        offsets.check()
        assert offsets.needed_from() == plain_needed_from(log[: offset + 1])
    assert offsets.end == len(log)


def test_old_records_come_first() -> None:
    offsets = LiveOffsets()
    at = count()
    for key in (KEYS[0], KEYS[1], KEYS[0], KEYS[2]):
        offsets.note(ShareSnapshotRecord(key, SNAPSHOT), Offset(next(at)))
    expected: list[LiveKey] = [KEYS[1], KEYS[0]]
    assert list(offsets.older_than(Offset(3))) == expected
    assert offsets.count == 3


def test_a_log_goes_on() -> None:
    offsets = LiveOffsets()
    offsets.note(ShareSnapshotRecord(KEYS[0], SNAPSHOT), Offset(7))
    with pytest.raises(AssertionError, match="offset 7 below the end 8"):
        offsets.note(ShareSnapshotRecord(KEYS[0], None), Offset(7))
