"""PartitionStore over gRPC: raw batches in and out, beside Kafka clients, with bounds and
deadlines.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.clusters import Cluster, StartCluster
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tidemark.codec.record_batch import iterate_headers, read_header
from tidemark.codec.records import build_batch, read_records
from tidemark.model.errors import ErrorCode
from tidemark.runtime.channel import open_channel
from tidemark.runtime.clock import Clock
from tidemark_wire.v1 import common_pb2, partition_store_pb2, partition_store_pb2_grpc
from waiting import PATIENCE_MS, PATIENCE_S

pytestmark = [pytest.mark.e2e]

SERVICE = "tidemark_wire.v1.PartitionStore"
WAIT_S = PATIENCE_S
Stub = partition_store_pb2_grpc.PartitionStoreStub
Names = Callable[[str], str]
END_OF_STREAM: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it


@contextlib.asynccontextmanager
async def store(address: str) -> AsyncIterator[Stub]:
    channel = open_channel(address)
    try:
        yield Stub(channel)
    finally:
        await channel.close(None)


def create(cluster: Cluster, name: str, **config: str) -> tuple[str, common_pb2.TopicPartition]:
    """A topic of one partition, its leader's gRPC address and its name on the wire."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=dotted)])[name].result(WAIT_S)
    leader = admin.list_topics(name, timeout=WAIT_S).topics[name].partitions[0].leader
    return cluster.grpc(leader), common_pb2.TopicPartition(topic=name, partition=0)


def batch_of(values: Iterable[bytes]) -> bytes:
    now_ms = int(time.time() * 1_000)  # noqa: TID251
    return build_batch([(now_ms, None, value, ()) for value in values])


def values_in(batches: bytes) -> list[bytes | None]:
    view = memoryview(batches)
    return [
        record.value
        for position, header in iterate_headers(view)
        for record in read_records(view[position : position + header.size_bytes], header)
    ]


async def append(
    stub: Stub, requests: Sequence[partition_store_pb2.AppendRequest]
) -> list[partition_store_pb2.AppendResponse]:
    async def send() -> AsyncIterator[partition_store_pb2.AppendRequest]:
        for request in requests:
            yield request

    return [response async for response in stub.Append(send(), timeout=WAIT_S)]


def append_request(
    partition: common_pb2.TopicPartition, number: int, batches: bytes, acks: int = -1
) -> partition_store_pb2.AppendRequest:
    return partition_store_pb2.AppendRequest(
        correlation_id=number,
        partition=partition,
        current_leader_epoch=-1,
        acks=acks,
        timeout_ms=5_000,
        batches=batches,
    )


def fetch_request(
    partition: common_pb2.TopicPartition, offset: int, *, number: int = 1, **fields: Any
) -> partition_store_pb2.FetchRequest:
    wanted = {"bytes_max": 1 << 20, "bytes_min": 1, "wait_ms_max": 0, **fields}
    return partition_store_pb2.FetchRequest(
        correlation_id=number,
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        **wanted,
    )


async def fetch(
    stub: Stub, request: partition_store_pb2.FetchRequest
) -> partition_store_pb2.FetchResponse:
    call = stub.Fetch(timeout=WAIT_S)
    await call.write(request)
    response: partition_store_pb2.FetchResponse = await call.read()
    await call.done_writing()
    assert await call.read() is END_OF_STREAM
    return response


@pytest.mark.feature("Y01", "A04")
def test_what_goes_in_over_grpc_comes_out_over_grpc_and_over_kafka(
    cluster: Cluster, topic_name: Names
) -> None:
    name = topic_name("both")
    address, partition = create(cluster, name)
    values = [f"value {number}".encode() for number in range(300)]

    async def scenario() -> None:
        async with store(address) as stub:
            requests = [
                append_request(partition, number, batch_of(values[number * 10 : number * 10 + 10]))
                for number in range(30)
            ]
            responses = await append(stub, requests)
            assert [one.correlation_id for one in responses] == list(range(30))
            assert [one.base_offset for one in responses] == list(range(0, 300, 10))
            fetched = await fetch(stub, fetch_request(partition, 0))
            assert values_in(fetched.batches) == values
            assert (fetched.high_watermark, fetched.log_start_offset) == (300, 0)

    asyncio.run(scenario())
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    read = [message.value() for message in consumer.consume(300, timeout=WAIT_S)]
    consumer.close()
    assert read == values


def test_several_batches_in_one_message_get_consecutive_offsets(
    cluster: Cluster, topic_name: Names
) -> None:
    address, partition = create(cluster, topic_name("several"))

    async def scenario() -> None:
        async with store(address) as stub:
            batches = batch_of([b"a", b"b"]) + batch_of([b"c"])
            (response,) = await append(stub, [append_request(partition, 1, batches)])
            assert (response.error_code, response.base_offset) == (0, 0)
            # From the middle of a batch the whole batch comes; never more than asked beyond the
            # first.
            fetched = await fetch(stub, fetch_request(partition, 1, bytes_max=1))
            assert values_in(fetched.batches) == [b"a", b"b"]
            assert read_header(fetched.batches).base_offset == 0

    asyncio.run(scenario())


def test_mistakes_are_answered_and_the_stream_goes_on(cluster: Cluster, topic_name: Names) -> None:
    address, partition = create(cluster, topic_name("mistakes"), max_message_bytes="1000")
    damaged = bytearray(batch_of([b"x" * 50]))
    damaged[-1] ^= 1
    unknown = common_pb2.TopicPartition(topic="no-such-topic", partition=0)
    other = common_pb2.TopicPartition(
        topic=partition.topic, partition=0, topic_id=b"other-topic-id--"
    )
    odd = common_pb2.TopicPartition(topic=partition.topic, partition=0, topic_id=b"short")
    cases = [
        (append_request(unknown, 0, batch_of([b"x"])), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (append_request(other, 1, batch_of([b"x"])), ErrorCode.INCONSISTENT_TOPIC_ID),
        (append_request(odd, 2, batch_of([b"x"])), ErrorCode.INVALID_REQUEST),
        (append_request(partition, 3, bytes(damaged)), ErrorCode.CORRUPT_MESSAGE),
        (append_request(partition, 4, b"not a batch"), ErrorCode.INVALID_RECORD),
        (append_request(partition, 5, batch_of([b"x" * 2_000])), ErrorCode.MESSAGE_TOO_LARGE),
        (append_request(partition, 6, batch_of([b"x"]), acks=7), ErrorCode.INVALID_REQUIRED_ACKS),
        (append_request(partition, 7, batch_of([b"x"])), ErrorCode.NONE),
    ]

    async def scenario() -> None:
        async with store(address) as stub:
            responses = await append(stub, [request for request, _ in cases])
            assert [one.error_code for one in responses] == [int(error) for _, error in cases]
            fetched = await fetch(stub, fetch_request(partition, 9))
            assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(scenario())


def test_only_the_leader_serves(cluster: Cluster, topic_name: Names) -> None:
    address, partition = create(cluster, topic_name("led"))
    others = [cluster.grpc(broker) for broker in (1, 2, 3) if cluster.grpc(broker) != address]

    async def scenario() -> None:
        for other in others:
            async with store(other) as stub:
                (response,) = await append(stub, [append_request(partition, 1, batch_of([b"x"]))])
                assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_a_pull_waits_for_records_and_not_longer_than_it_says(
    cluster: Cluster, topic_name: Names
) -> None:
    address, partition = create(cluster, topic_name("waiting"))

    async def scenario() -> None:
        async with store(address) as stub:
            started = time.monotonic()
            empty = await fetch(stub, fetch_request(partition, 0, wait_ms_max=300))
            assert (empty.error_code, empty.batches) == (0, b"")
            assert time.monotonic() - started >= 0.25
            async with asyncio.TaskGroup() as tasks:
                pull = tasks.create_task(
                    fetch(stub, fetch_request(partition, 0, wait_ms_max=PATIENCE_MS))
                )
                await asyncio.sleep(0.1)
                await append(stub, [append_request(partition, 1, batch_of([b"woken"]))])
            assert values_in(pull.result().batches) == [b"woken"]

    asyncio.run(scenario())


def test_pulls_of_one_stream_wait_side_by_side(cluster: Cluster, topic_name: Names) -> None:
    """An idle partition's long poll does not hold up another partition's answer."""
    address, idle = create(cluster, topic_name("idle"))
    busy_address, busy = create(cluster, topic_name("busy"))
    attempts = 0
    while busy_address != address:
        attempts += 1
        busy_address, busy = create(cluster, topic_name(f"busy-{attempts}"))

    async def scenario() -> None:
        async with store(address) as stub:
            await append(stub, [append_request(busy, 1, batch_of([b"x"]))])
            call = stub.Fetch(timeout=WAIT_S)
            await call.write(fetch_request(idle, 0, number=1, wait_ms_max=PATIENCE_MS))
            await call.write(fetch_request(busy, 0, number=2))
            assert (await call.read()).correlation_id == 2
            call.cancel()

    asyncio.run(scenario())


def test_offsets_are_listed_by_mark_and_by_time(cluster: Cluster, topic_name: Names) -> None:
    address, partition = create(cluster, topic_name("offsets"))
    base_ms = Clock().wall_ms() - 3_600_000

    async def scenario() -> None:
        async with store(address) as stub:
            batch = build_batch([(base_ms + 10 * n, None, b"x", ()) for n in range(5)])
            await append(stub, [append_request(partition, 1, batch)])
            query = partition_store_pb2.ListOffsetsRequest.Query
            request = partition_store_pb2.ListOffsetsRequest(
                queries=[
                    query(partition=partition, timestamp_ms=wanted, current_leader_epoch=-1)
                    for wanted in (-1, -2, -3, base_ms + 15, base_ms + 1_000)
                ]
            )
            response = await stub.ListOffsets(request, timeout=WAIT_S)
            assert [one.offset for one in response.answers] == [5, 0, 4, 2, -1]
            assert response.answers[3].timestamp_ms == base_ms + 20

    asyncio.run(scenario())


def test_a_leader_epoch_ends_where_the_log_does(cluster: Cluster, topic_name: Names) -> None:
    address, partition = create(cluster, topic_name("epoch-ends"))

    async def scenario() -> None:
        async with store(address) as stub:
            await append(stub, [append_request(partition, 1, batch_of([b"x", b"y"]))])
            query = partition_store_pb2.FindEpochEndsRequest.Query
            request = partition_store_pb2.FindEpochEndsRequest(
                queries=[
                    query(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
                    for current, epoch in ((-1, 0), (0, 0), (-1, 1), (1, 0))
                ]
            )
            response = await stub.FindEpochEnds(request, timeout=WAIT_S)
            found = [(one.error_code, one.leader_epoch, one.end_offset) for one in response.answers]
            unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
            assert found == [(0, 0, 2), (0, 0, 2), (0, -1, -1), (unknown, -1, -1)]

    asyncio.run(scenario())


def test_a_deadline_ends_the_stream_and_leaves_nothing_behind(
    cluster: Cluster, topic_name: Names
) -> None:
    address, partition = create(cluster, topic_name("deadline"))

    async def scenario() -> None:
        async with store(address) as stub:
            request = fetch_request(partition, 0, wait_ms_max=PATIENCE_MS)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stub.Fetch(iter([request]), timeout=0.3).read()
            assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await append(stub, [append_request(partition, 1, batch_of([b"x"]))])

    asyncio.run(scenario())
    leader = next(broker for broker in (1, 2, 3) if cluster.grpc(broker) == address)
    assert "Traceback" not in cluster.log(f"broker-{leader}")


def test_health_and_reflection_are_served(cluster: Cluster) -> None:
    async def scenario() -> None:
        channel = open_channel(cluster.grpc(1))
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=WAIT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([asked]), timeout=WAIT_S
        )
        listed = await call.read()
        call.cancel()
        await channel.close(None)
        assert SERVICE in {one.name for one in listed.list_services_response.service}

    asyncio.run(scenario())


def flip_a_byte(log_path: Path) -> None:
    content = bytearray(log_path.read_bytes())
    content[-3] ^= 0xFF
    log_path.write_bytes(content)


def test_damaged_bytes_are_never_served(start_cluster: StartCluster) -> None:
    cluster = start_cluster(brokers=1, controllers=1)
    address, partition = create(cluster, "damaged")

    async def scenario() -> None:
        async with store(address) as stub:
            await append(
                stub,
                [append_request(partition, number, batch_of([b"x" * 100])) for number in range(2)],
            )
            flip_a_byte(cluster.data_directory() / "damaged-0" / f"{0:020}.log")
            fetched = await fetch(stub, fetch_request(partition, 0))
            assert (fetched.error_code, fetched.batches) == (ErrorCode.CORRUPT_MESSAGE, b"")
            good = await fetch(stub, fetch_request(partition, 0, bytes_max=1))
            assert values_in(good.batches) == [b"x" * 100]

    asyncio.run(scenario())


def test_clients_that_vanish_leave_nothing_behind(start_cluster: StartCluster) -> None:
    """Streams cut off at any moment: no bytes stay counted, nothing stays parked, nobody else
    notices. Of its own, for followers of other topics park too.
    """
    cluster = start_cluster()
    address, partition = create(cluster, "vanish")

    async def vanish(stub: Stub, number: int) -> None:
        pull = stub.Fetch(timeout=WAIT_S)
        await pull.write(fetch_request(partition, 1 << 40 if number % 2 else 0, wait_ms_max=9_000))
        push = stub.Append(timeout=WAIT_S)
        await push.write(append_request(partition, 1, batch_of([b"x" * 100_000])))
        await asyncio.sleep(0.002 * (number % 10))
        pull.cancel()
        push.cancel()

    async def scenario() -> None:
        async with store(address) as stub:
            await asyncio.gather(*(vanish(stub, number) for number in range(60)))
            fetched = await fetch(stub, fetch_request(partition, 0))
            assert fetched.error_code == 0

    asyncio.run(scenario())
    assert "Traceback" not in cluster.log("broker-1")
    parked = "kafka_server_delayedoperationpurgatory_purgatorysize 0.0"
    assert parked in cluster.ops("broker-1", "/metrics")


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1_024 * int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1])


def test_a_client_that_asks_and_does_not_listen_takes_a_bounded_share(
    cluster: Cluster, topic_name: Names
) -> None:
    """Two hundred pulls of a megabyte each on a stream nobody reads from: most stay in the log."""
    address, partition = create(cluster, topic_name("deaf"))
    leader = next(number for number in (1, 2, 3) if cluster.grpc(number) == address)
    pid = cluster.pid(f"broker-{leader}")

    async def scenario() -> None:
        async with store(address) as stub:
            appends = [
                append_request(partition, number, batch_of([b"x" * 1_000_000]))
                for number in range(8)
            ]
            await append(stub, appends)
            before = resident_bytes(pid)
            deaf = stub.Fetch(timeout=WAIT_S)
            for number in range(200):
                await deaf.write(fetch_request(partition, number % 8, number=number))
            for _ in range(5):  # others are served meanwhile
                fetched = await fetch(stub, fetch_request(partition, 3))
                assert read_header(fetched.batches).base_offset == 3
            assert resident_bytes(pid) - before < 50_000_000
            deaf.cancel()

    asyncio.run(scenario())
