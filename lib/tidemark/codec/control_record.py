"""Control batches that end a transaction (KIP-98): one record that no user sees.

key    version int16 (0) · type int16 (0 abort, 1 commit)
value  version int16 (0) · coordinator epoch int32
"""

import struct
from typing import Final, NamedTuple

from tidemark.codec.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Buffer
from tidemark.codec.records import RecordsError, build_batch, read_records

_ABORT: Final = 0
_COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class EndTxnMarker(NamedTuple):
    """How a producer's transaction ended in one partition."""

    commits: bool
    coordinator_epoch: int


def build_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch for one marker, without an offset yet."""
    key = _KEY.pack(0, _COMMIT if marker.commits else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [(timestamp, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        attributes_extra=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def read_marker(batch: Buffer, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in a control batch; None for a control record of another type. Raises
    RecordsError.
    """
    records = read_records(batch, header)
    if len(records) != 1:
        raise RecordsError(f"a control batch holds one record, not {len(records)}")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise RecordsError("control record without a version and a type")
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise RecordsError("end of transaction without a coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTxnMarker(kind == _COMMIT, coordinator_epoch)
