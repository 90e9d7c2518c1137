"""gRPC append and fetch of raw batches through PartitionStore, reported beside the Kafka wire."""

import asyncio
import time
from collections.abc import AsyncIterator

import grpc
from bench.broker import BrokerUnderTest
from bench.frames import batch_of
from bench.processes import cpu_seconds
from bench.report import Row
from tidemark_wire.v1 import common_pb2, partition_store_pb2, partition_store_pb2_grpc

IN_FLIGHT = 5
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


async def append(target: str, topic: str, size: int, total: int) -> float:
    """Append ``total`` bytes over one stream with five requests in flight; seconds."""
    batch = batch_of(size)
    count = max(1, total // size)
    window = asyncio.Semaphore(IN_FLIGHT)

    async def requests() -> AsyncIterator[partition_store_pb2.AppendRequest]:
        for number in range(count):
            await window.acquire()
            yield partition_store_pb2.AppendRequest(
                correlation_id=number,
                partition=common_pb2.TopicPartition(topic=topic, partition=0),
                current_leader_epoch=-1,
                acks=1,
                timeout_ms=30_000,
                batches=batch,
            )

    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        stub = partition_store_pb2_grpc.PartitionStoreStub(channel)
        start = time.perf_counter()
        async for answer in stub.Append(requests()):
            assert answer.error_code == 0, answer
            window.release()
        return time.perf_counter() - start


async def fetch(target: str, topic: str, size: int, total: int) -> tuple[float, int]:
    """Read from offset 0 until ``total`` bytes; seconds and bytes."""
    got = 0
    queue: asyncio.Event = asyncio.Event()
    offset = 0

    async def requests() -> AsyncIterator[partition_store_pb2.FetchRequest]:
        number = 0
        while got < total:
            queue.clear()
            number += 1
            yield partition_store_pb2.FetchRequest(
                correlation_id=number,
                partition=common_pb2.TopicPartition(topic=topic, partition=0),
                current_leader_epoch=-1,
                fetch_offset=offset,
                bytes_max=size,
                bytes_min=1,
                wait_ms_max=500,
            )
            await queue.wait()

    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        stub = partition_store_pb2_grpc.PartitionStoreStub(channel)
        start = time.perf_counter()
        async for answer in stub.Fetch(requests()):
            assert answer.error_code == 0, answer
            data = answer.batches
            got += len(data)
            offset = 0 if not data else next_offset(data)
            queue.set()
        return time.perf_counter() - start, got


def next_offset(data: bytes) -> int:
    """Behind the last whole batch."""
    position = last = 0
    while position + 61 <= len(data):
        last = position
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    base = int.from_bytes(data[last : last + 8], "big")
    return base + int.from_bytes(data[last + 23 : last + 27], "big") + 1


def bench_grpc(broker: BrokerUnderTest, *, total: int, where: str) -> list[Row]:
    """Append and fetch at 64 KB and 1 MB."""
    rows = []
    target = f"127.0.0.1:{broker.member.ports['grpc']}"
    for size in (64 << 10, 1 << 20):
        topic = f"grpc-{size}"
        broker.create_topic(topic)
        before = cpu_seconds(broker.pid)
        seconds = asyncio.run(append(target, topic, size, total))
        spent = cpu_seconds(broker.pid) - before
        rows.append(grpc_row(f"append {size >> 10:,} KB", where, total, seconds, spent))
        before = cpu_seconds(broker.pid)
        seconds, got = asyncio.run(fetch(target, topic, size, total))
        spent = cpu_seconds(broker.pid) - before
        rows.append(grpc_row(f"fetch {size >> 10:,} KB", where, got, seconds, spent))
        broker.delete_topic(topic)
    return rows


def grpc_row(name: str, where: str, size: int, seconds: float, cpu: float) -> Row:
    """Figures as a row."""
    return Row(
        f"gRPC PartitionStore, {where}",
        name,
        mb_s=size / seconds / 1e6,
        cpu_s_per_gb=cpu / (size / 1e9),
    )
