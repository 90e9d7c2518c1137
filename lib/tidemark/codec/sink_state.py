"""What the record of a transactional id says when it is a sink's: which of a streaming query's
batches are committed.

It is a part of the handle's record, so that the record that commits a transaction is the one that
says that its batch is done.

query id string · batch int64 · committed batch int64 · crc of the winners int64 · note string ·
retired query ids array of string · tags
"""

from dataclasses import dataclass
from typing import Final

from tidemark.codec.group_records_fields import FieldReader, FieldWriter

NO_BATCH: Final = -1


@dataclass(frozen=True, slots=True)
class SinkState:
    """Invariant: the present query is none of the retired ones; its batches rise."""

    query_id: str
    """Whose batches are taken."""
    batch_id: int = NO_BATCH
    """The batch that the id's present or last transaction is for; -1: none of this query's."""
    committed_batch_id: int = NO_BATCH
    """The last one that was committed by this query; -1: none yet."""
    winners_crc: int = 0
    """uint32, of the writers that this commit named."""
    note: str = ""
    """What that commit wished to be remembered with it."""
    retired: tuple[str, ...] = ()
    """Queries that were taken over from, oldest first: none of them comes back."""


def write_sink(writer: FieldWriter, sink: SinkState) -> None:
    """As a structure within a value."""
    writer.string(sink.query_id)
    writer.int64(sink.batch_id)
    writer.int64(sink.committed_batch_id)
    writer.int64(sink.winners_crc)
    writer.string(sink.note)
    writer.array(sink.retired, writer.string)
    writer.tags()


def read_sink(reader: FieldReader) -> SinkState:
    """What ``write_sink`` wrote. Raises DamagedRecordError."""
    sink = SinkState(
        query_id=reader.string(),
        batch_id=reader.int64(),
        committed_batch_id=reader.int64(),
        winners_crc=reader.int64(),
        note=reader.string(),
        retired=reader.array(reader.string),
    )
    reader.tags()
    return sink
