"""Brokers that keep one partition in memory, behind real gRPC servers on loopback."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc.aio
from tidemark.codec.control_record import OwnerRecord, build_owner
from tidemark.codec.record_batch import iterate_headers, set_base_offset_and_epoch
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import partition_store_pb2 as pb
from tidemark_wire.v1 import partition_store_pb2_grpc

STATE = TopicPartition("__transaction_state", 0)
STATE_ID = TopicId(b"state-topic-id-0")


def batch_of(*values: bytes) -> bytes:
    return build_batch([(0, b"k", value, ()) for value in values])


class MemoryPartition:
    """The log that all of a test's brokers share: as if replication were perfect."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start = 0
        self.end = 0
        self.owner_epoch = 0

    def append(self, batches: bytes) -> int:
        """The base offset of the first batch."""
        base = self.end
        for at, header in iterate_headers(batches):
            batch = bytearray(batches[at : at + header.size_bytes])
            set_base_offset_and_epoch(batch, 0, Offset(self.end), LeaderEpoch(0))
            self.batches.append(bytes(batch))
            self.end += header.last_offset_delta + 1
        return base

    def compact(self, *kept: int) -> None:
        """Only the batches with these base offsets stay."""
        self.batches = [batch for batch in self.batches if _base(batch) in kept]

    def delete_before(self, offset: int) -> None:
        """Batches that end below ``offset`` are gone."""
        self.log_start = max(self.log_start, offset)
        self.batches = [batch for batch in self.batches if _last(batch) >= offset]

    def read(self, offset: int) -> bytes:
        """One batch: the first that ends at or after ``offset``."""
        following = (batch for batch in self.batches if _last(batch) >= offset)
        return next(following, b"")


def _base(batch: bytes) -> int:
    return next(header.base_offset for _, header in iterate_headers(batch))


def _last(batch: bytes) -> int:
    return next(header.last_offset for _, header in iterate_headers(batch))


class MemoryBroker(partition_store_pb2_grpc.PartitionStoreServicer):
    """Serves the partition while ``leads``; ``refusals`` are the answers of the next appends."""

    def __init__(self, broker_id: int, partition: MemoryPartition) -> None:
        self.broker_id = broker_id
        self.endpoint = ""
        self.leads = True
        self.partition = partition
        self.refusals: list[tuple[ErrorCode, int]] = []
        self.fetch_refusals: list[ErrorCode] = []
        self.is_silent = False
        self.appends: list[pb.AppendRequest] = []
        self.was_appended_to = asyncio.Event()
        self.streams = 0

    async def Append(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: N802
        self.streams += 1
        async for request in requests:
            self.appends.append(request)
            self.was_appended_to.set()
            if self.is_silent:
                await asyncio.Event().wait()
            code, base = self._append(request)
            await context.write(
                pb.AppendResponse(
                    correlation_id=request.correlation_id, error_code=code, base_offset=base
                )
            )

    def _append(self, request: Any) -> tuple[ErrorCode, int]:
        if self.refusals:
            return self.refusals.pop(0)
        if not self.leads:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if request.owner_epoch < self.partition.owner_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED, -1
        self.partition.owner_epoch = request.owner_epoch
        owner = build_owner(OwnerRecord(request.owner_epoch), timestamp=0)
        batches = owner if request.owner_takes_over else request.batches
        return ErrorCode.NONE, self.partition.append(batches)

    async def Fetch(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: N802
        async for request in requests:
            await context.write(self._fetch(request))

    def _fetch(self, request: Any) -> pb.FetchResponse:
        code = ErrorCode.NONE if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.fetch_refusals:
            code = self.fetch_refusals.pop(0)
        batches = b"" if code else self.partition.read(request.fetch_offset)
        return pb.FetchResponse(
            correlation_id=request.correlation_id, error_code=code, batches=batches
        )

    async def ListOffsets(self, request: Any, context: Any) -> pb.ListOffsetsResponse:  # noqa: N802
        code = ErrorCode.NONE if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = pb.ListOffsetsResponse.Answer(error_code=code, offset=self.partition.log_start)
        return pb.ListOffsetsResponse(answers=[answer])

    async def DeleteRecords(  # noqa: N802
        self, request: Any, context: Any
    ) -> pb.DeleteRecordsResponse:
        if not self.leads:
            return pb.DeleteRecordsResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if request.owner_epoch < self.partition.owner_epoch:
            return pb.DeleteRecordsResponse(error_code=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        self.partition.delete_before(request.offset)
        return pb.DeleteRecordsResponse(log_start_offset=self.partition.log_start)


@asynccontextmanager
async def brokers(count: int) -> AsyncIterator[list[MemoryBroker]]:
    """So many, with numbers from 1, over one partition; the first of them leads."""
    partition = MemoryPartition()
    made = [MemoryBroker(number, partition) for number in range(1, count + 1)]
    async with AsyncExitStack() as stack:
        for broker in made:
            broker.leads = broker is made[0]
            server = grpc.aio.server()
            partition_store_pb2_grpc.add_PartitionStoreServicer_to_server(broker, server)
            broker.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            stack.push_async_callback(server.stop, None)
        yield made


def image_of(
    version: int, made: Sequence[MemoryBroker], *, leader: int, leader_epoch: int = 1
) -> ClusterImage:
    """The metadata when broker ``leader`` leads the partition (-1: nobody does)."""
    everybody = tuple(BrokerId(broker.broker_id) for broker in made)
    partition = PartitionImage(
        0, everybody, everybody, BrokerId(leader), LeaderEpoch(leader_epoch), PartitionEpoch(0)
    )
    topic = TopicImage(STATE.topic, STATE_ID, {}, (partition,))
    return ClusterImage(
        position=FeedPosition(ControllerEpoch(1), version),
        brokers={
            BrokerId(broker.broker_id): BrokerImage(
                BrokerId(broker.broker_id),
                BrokerEpoch(1),
                b"",
                (),
                broker.endpoint,
                None,
                "",
                False,
            )
            for broker in made
        },
        topics={topic.name: topic},
        topics_by_id={topic.topic_id: topic},
    )
