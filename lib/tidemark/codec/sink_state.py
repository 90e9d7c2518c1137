"""State of a sink: the batches of a streaming query that a transactional id has committed.

It is part of the handle's record, so that one record commits a transaction and marks its batch as
done.

query id string · batch int64 · committed batch int64 · crc of the winners int64 · note string ·
retired query ids array of string · tags (0: expires)
"""

from dataclasses import dataclass
from typing import Final

from tidemark.codec.coordinator_fields import FieldReader, FieldWriter

NO_BATCH: Final = -1
_EXPIRES_TAG: Final = 0
_YES: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class SinkState:
    """State of one sink. Invariant: the current query is not retired, and its batches increase."""

    query_id: str
    """Id of the query whose batches are accepted."""
    batch_id: int = NO_BATCH
    """Batch of the current or last transaction; -1 if it is not of this query."""
    committed_batch_id: int = NO_BATCH
    """Last batch that this query committed; -1 if none."""
    winners_crc: int = 0
    """CRC (uint32) of the writers in that commit."""
    note: str = ""
    """Note stored by that commit."""
    retired: tuple[str, ...] = ()
    """Former queries, oldest first. They cannot become current again."""
    expires: bool = False
    """No batch is repeated later: the state is removed when it is unused for long."""


def write_sink(writer: FieldWriter, sink: SinkState) -> None:
    """Write a structure within a value."""
    writer.string(sink.query_id)
    writer.int64(sink.batch_id)
    writer.int64(sink.committed_batch_id)
    writer.int64(sink.winners_crc)
    writer.string(sink.note)
    writer.array(sink.retired, writer.string)
    writer.tags({_EXPIRES_TAG: _YES} if sink.expires else None)


def read_sink(reader: FieldReader) -> SinkState:
    """Read the structure that ``write_sink`` wrote. Raises DamagedRecordError."""
    return SinkState(
        query_id=reader.string(),
        batch_id=reader.int64(),
        committed_batch_id=reader.int64(),
        winners_crc=reader.int64(),
        note=reader.string(),
        retired=reader.array(reader.string),
        expires=reader.tags().get(_EXPIRES_TAG) == _YES,
    )
