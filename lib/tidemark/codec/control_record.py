"""Control batches: one record, invisible to users.

key    version int16 (0) · type int16
value  version int16 (0) · epoch int32

Type 0 aborts and 1 commits a producer's transaction (KIP-98); the epoch is its coordinator's. Type
1000 is Tidemark's own: the owner of a coordinator's shard has changed, and from here on appends of
owners with a lower epoch are refused. Other types (KRaft's) are ignored.
"""

import struct
from typing import Final, NamedTuple

from tidemark.codec.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Buffer
from tidemark.codec.records import RecordsError, build_batch, read_records

_ABORT: Final = 0
_COMMIT: Final = 1
_OWNER: Final = 1000
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class EndTxnMarker(NamedTuple):
    """End of a producer's transaction in one partition."""

    commits: bool
    coordinator_epoch: int


class OwnerRecord(NamedTuple):
    """Change of a shard's owner: from here on only owners of this epoch or a higher one may append
    to the partition.
    """

    owner_epoch: int


ControlRecord = EndTxnMarker | OwnerRecord


def build_owner(owner: OwnerRecord, *, timestamp: int, leader_epoch: int = -1) -> bytes:
    """Build the control batch of a change of owner, without an offset yet."""
    return build_batch(
        [(timestamp, _KEY.pack(0, _OWNER), _VALUE.pack(0, owner.owner_epoch), ())],
        leader_epoch=leader_epoch,
        attributes_extra=CONTROL_BIT,
    )


def build_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    leader_epoch: int = -1,
) -> bytes:
    """Build the control batch of one marker, without an offset yet."""
    key = _KEY.pack(0, _COMMIT if marker.commits else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [(timestamp, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        attributes_extra=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def read_control(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """Read a control batch; return None for a type other than those above. Raises RecordsError."""
    records = read_records(batch, header)
    if len(records) != 1:
        raise RecordsError(f"a control batch holds one record, not {len(records)}")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise RecordsError("control record without a version and a type")
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT, _OWNER):
        return None
    if value is None or len(value) < _VALUE.size:
        raise RecordsError("control record without an epoch")
    _, epoch = _VALUE.unpack_from(value)
    return OwnerRecord(epoch) if kind == _OWNER else EndTxnMarker(kind == _COMMIT, epoch)
