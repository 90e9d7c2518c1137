"""WriteTxnMarkers (27): an administrator ends a transaction that hangs in partitions led here.

Coordinators send theirs through TransactionMarkers (gRPC); the append is the same, but only a
coordinator raises the epoch that fences the coordinators before it.
"""

from __future__ import annotations

from tidemark.codec.control_record import EndTxnMarker
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.protocol.shard import Writer

from broker.shell.facts import BrokerFacts
from broker.shell.partitions.table import PartitionTable
from broker.shell.request_context import RequestContext
from broker.shell.transactions.marker_writer import BUMPED_FROM, Ending, MarkerWriter, Written


async def handle(
    facts: BrokerFacts,
    table: PartitionTable,
    markers: MarkerWriter,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Append every marker before waiting for the first."""
    if not (
        _may(facts, context, Operation.ALTER) or _may(facts, context, Operation.CLUSTER_ACTION)
    ):
        return _refused(request)
    written = [
        [
            (
                topic.name,
                [
                    (one, _write(table, markers, marker, topic.name, one))
                    for one in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        for marker in request.markers
    ]
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {"name": topic, "partitions": [await _row(markers, *one) for one in partitions]}
                    for topic, partitions in topics
                ],
            }
            for marker, topics in zip(request.markers, written, strict=True)
        ]
    }


def _may(facts: BrokerFacts, context: RequestContext, operation: Operation) -> bool:
    return facts.authorizer.authorize(context.requester, operation, CLUSTER)


def _write(
    table: PartitionTable, markers: MarkerWriter, marker: Struct, topic: str, partition: int
) -> Written:
    hosted = table.find(topic, NO_TOPIC_ID, partition)
    if isinstance(hosted, ErrorCode):
        return Written(hosted, "")
    end = EndTxnMarker(marker.transaction_result, marker.coordinator_epoch)
    ending = Ending(
        Writer(marker.producer_id, marker.producer_epoch),
        hosted.partition.producers.administrators_marker(marker.producer_id, end),
        marker.transaction_version >= BUMPED_FROM,
    )
    return markers.write(hosted, ending)


def _refused(request: Struct) -> dict[str, object]:
    """Refuse every partition: the response has no error of its own."""
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": one, "error_code": code}
                            for one in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }


async def _row(markers: MarkerWriter, partition: int, written: Written) -> dict[str, object]:
    code, _ = await markers.settled(written)
    return {"partition_index": partition, "error_code": int(code)}
