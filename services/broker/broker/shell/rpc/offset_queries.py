"""ListOffsets, and OffsetForLeaderEpoch, over gRPC: the same lookups as over Kafka's protocol."""

from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import partition_store_pb2

from broker.core.epoch_end import EpochEnd, epoch_end
from broker.core.list_offsets import FoundOffset, at_mark
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.offset_lookup import OffsetLookup
from broker.shell.partitions.table import PartitionTable
from broker.shell.rpc.permitted import NamedPartition, permitted
from broker.shell.rpc.streams import Caller
from broker.shell.wire_mapping import OffsetQuery, read_offset_query, read_topic_id


class OffsetQueries:
    """Answers offset queries of gRPC clients."""

    def __init__(self, facts: BrokerFacts, table: PartitionTable, lookup: OffsetLookup) -> None:
        self._facts = facts
        self._table = table
        self._lookup = lookup

    async def answer(
        self,
        caller: Caller,
        asked: partition_store_pb2.ListOffsetsRequest.Query,
        *,
        read_committed: bool = False,
    ) -> partition_store_pb2.ListOffsetsResponse.Answer:
        """Return one offset, as a reader of that isolation level sees it, or an error."""
        query = read_offset_query(asked)
        found = (
            FoundOffset(query)
            if isinstance(query, ErrorCode)
            else await self._look_up(caller, query, read_committed=read_committed)
        )
        return partition_store_pb2.ListOffsetsResponse.Answer(
            partition=asked.partition,
            error_code=found.error_code,
            timestamp_ms=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    def epoch_end(
        self, caller: Caller, asked: partition_store_pb2.FindEpochEndsRequest.Query
    ) -> partition_store_pb2.FindEpochEndsResponse.Answer:
        """Return the end of an epoch, or an error."""
        found = self._epoch_end(caller, asked)
        return partition_store_pb2.FindEpochEndsResponse.Answer(
            partition=asked.partition,
            error_code=found.error_code,
            leader_epoch=found.leader_epoch,
            end_offset=found.end_offset,
        )

    def _epoch_end(
        self, caller: Caller, asked: partition_store_pb2.FindEpochEndsRequest.Query
    ) -> EpochEnd:
        topic_id = read_topic_id(asked.partition.topic_id)
        if topic_id is None:
            return EpochEnd(ErrorCode.INVALID_REQUEST)
        named = NamedPartition(asked.partition.topic, topic_id, asked.partition.partition)
        hosted = permitted(self._facts, self._table, caller, Operation.DESCRIBE, named)
        if isinstance(hosted, ErrorCode):
            return EpochEnd(hosted)
        return epoch_end(hosted.partition, asked.current_leader_epoch, asked.leader_epoch)

    async def _look_up(
        self, caller: Caller, query: OffsetQuery, *, read_committed: bool
    ) -> FoundOffset:
        hosted = permitted(self._facts, self._table, caller, Operation.DESCRIBE, query)
        if isinstance(hosted, ErrorCode):
            return FoundOffset(hosted)
        marked = at_mark(
            hosted.partition,
            query.timestamp_ms,
            leader_epoch_expected=query.leader_epoch,
            read_committed=read_committed,
        )
        if marked is not None:
            return marked
        return await self._lookup.at_time(
            hosted, query.timestamp_ms, lane=caller.peer, read_committed=read_committed
        )
