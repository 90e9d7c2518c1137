"""A whole replica in one process, called over gRPC: its log and its markers on a broker that keeps
one partition in memory and notes markers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import grpc.aio
import pytest
from tidemark.codec.java_hash import shard_for_name
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import TXN, ClusterImage, ShardOwner
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.runtime.coordinator import paging
from tidemark.runtime.metrics import Metrics
from tidemark_wire.v1 import partition_store_pb2_grpc, txn_pb2_grpc
from tidemark_wire.v1 import txn_pb2 as pb
from txn_coordinator.config import TxnCoordinatorConfig
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc import list_transactions
from txn_coordinator.shell.server import make_server
from unit.tidemark.runtime import memory_brokers
from unit.tidemark.runtime.coordinator.member import Member
from unit.txn_coordinator.shell import marker_brokers
from waiting import patience, until, until_told

TIMEOUT_MS = 60_000
GROUPS = 7


class World:
    """The node, and its surroundings for a test."""

    def __init__(
        self,
        node: TxnCoordinatorNode,
        member: Member,
        broker: memory_brokers.MemoryBroker,
        markers: marker_brokers.MarkerBroker,
        stub: Any,
    ) -> None:
        self.node = node
        self.member = member
        self.broker = broker
        self.markers = markers
        self.stub = stub

    async def serving(self) -> None:
        await until(lambda: bool(self.node.shards.serving()))

    async def init(self, name: str = "t", **fields: Any) -> Any:
        request = {"producer_id": -1, "producer_epoch": -1, "transactions_v2": True, **fields}
        return await self.stub.InitTransactionalId(
            pb.InitTransactionalIdRequest(
                transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, **request
            )
        )

    async def add(self, who: Any, *partitions: TopicPartition, name: str = "t") -> Any:
        return await self.stub.AddPartitions(
            pb.AddPartitionsRequest(
                transactional_id=name,
                producer_id=who.producer_id,
                producer_epoch=who.producer_epoch,
                partitions=[
                    pb.Partition(topic=at.topic, partition=at.partition) for at in partitions
                ],
                transactions_v2=True,
            )
        )

    async def end(self, who: Any, *, commit: bool = True, name: str = "t") -> Any:
        return await self.stub.EndTransaction(
            pb.EndTransactionRequest(
                transactional_id=name,
                producer_id=who.producer_id,
                producer_epoch=who.producer_epoch,
                commit=commit,
                transactions_v2=True,
            )
        )

    async def describe(self, *names: str) -> Sequence[Any]:
        request = pb.DescribeTransactionsRequest(transactional_ids=names)
        return list((await self.stub.DescribeTransactions(request)).transactions)

    async def wait_state(self, state: str, name: str = "t") -> None:
        async def has_come() -> bool:
            return bool((await self.describe(name))[0].state == state)

        await until_told(has_come, f"{name} comes to {state}")


A0 = TopicPartition("a", 0)


def metadata(
    broker: memory_brokers.MemoryBroker, markers: marker_brokers.MarkerBroker
) -> ClusterImage:
    state = memory_brokers.image_of(1, [broker], leader=1)
    users = marker_brokers.image_of(
        1, [markers], {"a": (1, 1), "__consumer_offsets": (1,) * GROUPS}
    )
    return replace(
        state,
        topics={**state.topics, **users.topics},
        shards={TXN: (ShardOwner(0, 1, 1),)},
    )


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    broker = memory_brokers.MemoryBroker(1, memory_brokers.MemoryPartition())
    markers = marker_brokers.MarkerBroker(1)
    server = grpc.aio.server()
    partition_store_pb2_grpc.add_PartitionStoreServicer_to_server(broker, server)
    txn_pb2_grpc.add_TransactionMarkersServicer_to_server(markers, server)
    broker.endpoint = markers.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    config = TxnCoordinatorConfig(coordinator_id=1, grpc_listen="127.0.0.1:0")
    node = TxnCoordinatorNode(config, Clock(), Metrics("txn-coordinator"))
    member = Member(TXN, metadata(broker, markers))
    stop = asyncio.Event()
    try:
        async with (
            make_server(config.grpc_listen, node) as grpc_server,
            grpc.aio.insecure_channel(str(grpc_server.address)) as channel,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(node.run(member, stop))
            stub: Any = txn_pb2_grpc.TransactionCoordinatorStub(channel)
            try:
                yield World(node, member, broker, markers, stub)
            finally:
                stop.set()
    finally:
        await server.stop(None)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world() as here, patience():
            await here.serving()
            await scenario(here)

    asyncio.run(main())


@pytest.mark.feature("L08")
def test_a_transaction_lives_from_its_first_partition_to_its_last_marker() -> None:
    async def scenario(here: World) -> None:
        who = await here.init()
        assert (who.error_code, who.producer_id) == (0, 1_000)
        assert [one.error_code for one in (await here.add(who, A0)).results] == [0]
        following = await here.end(who)
        assert (following.error_code, following.producer_epoch) == (0, who.producer_epoch + 1)
        await here.wait_state("CompleteCommit")
        assert here.markers.targets() == [["a-0"]]

    run(scenario)


@pytest.mark.feature("L17")
def test_a_transaction_costs_three_saves_of_its_coordinator_and_one_round_of_markers() -> None:
    """Five in Kafka, with the data, one after the other. A commit waits for the third."""

    async def scenario(here: World) -> None:
        who = await here.init()
        saves = [len(here.broker.appends)]
        await here.add(who, A0, TopicPartition("a", 1))
        saves.append(len(here.broker.appends))  # the partitions
        here.markers.gate.clear()
        await here.end(who)
        saves.append(len(here.broker.appends))  # the outcome: the client has its answer
        here.markers.gate.set()
        await here.wait_state("CompleteCommit")
        saves.append(len(here.broker.appends))  # that all markers are written
        assert [after - before for before, after in pairwise(saves)] == [1, 1, 1]
        assert here.markers.targets() == [["a-0", "a-1"]]

    run(scenario)


def test_markers_carry_the_shards_owner_epoch() -> None:
    async def scenario(here: World) -> None:
        who = await here.init()
        await here.add(who, A0)
        await here.end(who, commit=False)
        await here.wait_state("CompleteAbort")
        (marker,) = here.markers.requests[0].markers
        assert (marker.coordinator_epoch, marker.commit) == (here.member.owner_epoch, False)

    run(scenario)


def test_a_decided_transaction_survives_the_loss_of_its_state() -> None:
    async def scenario(here: World) -> None:
        here.markers.gate.clear()
        who = await here.init()
        await here.add(who, A0)
        await here.end(who)
        await here.markers.was_asked.wait()
        here.node.shards.fenced(0, here.member.owner_epoch)
        await asyncio.sleep(0)
        here.markers.gate.set()
        await here.serving()
        await here.wait_state("CompleteCommit")
        epochs = [request.markers[0].coordinator_epoch for request in here.markers.requests]
        assert epochs == [1, 2]

    run(scenario)


def test_a_failed_append_answers_at_once_and_loads_again() -> None:
    async def scenario(here: World) -> None:
        here.broker.refusals = [(ErrorCode.REQUEST_TIMED_OUT, 5)]
        assert (await here.init()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await here.serving()
        assert (await here.init()).error_code == ErrorCode.NONE
        assert here.member.owner_epoch == 2

    run(scenario)


def test_a_shard_that_is_another_coordinators_is_refused() -> None:
    async def scenario(here: World) -> None:
        here.member.show(shards={TXN: (ShardOwner(0, 2, 9),)})
        assert (await here.init()).error_code == ErrorCode.NOT_COORDINATOR
        assert (await here.describe("t"))[0].error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_a_partition_that_the_metadata_does_not_show_is_not_added() -> None:
    async def scenario(here: World) -> None:
        who = await here.init()
        async with asyncio.TaskGroup() as tasks:
            adding = tasks.create_task(here.add(who, A0, TopicPartition("later", 0)))
            await asyncio.sleep(0.01)
            assert not adding.done()
            users = marker_brokers.image_of(1, [here.markers], {"later": (1,)})
            here.member.show(topics={**here.member.image.topics, **users.topics})
        assert [one.error_code for one in adding.result().results] == [0, 0]

    run(scenario)


def test_a_groups_offsets_are_the_partition_of_the_topic_as_it_is() -> None:
    async def scenario(here: World) -> None:
        who = await here.init()
        request = pb.AddOffsetsRequest(
            transactional_id="t",
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            group_id="my-group",
        )
        assert (await here.stub.AddOffsets(request)).error_code == 0
        (found,) = (await here.describe("t"))[0].partitions
        expected = ("__consumer_offsets", shard_for_name("my-group", GROUPS))
        assert (found.topic, found.partition) == expected

    run(scenario)


def test_an_id_that_was_not_taken_serves_the_next_request() -> None:
    async def scenario(here: World) -> None:
        first = await here.init("t")
        await here.init("t")  # the same id, its epoch raised
        second = await here.init("u")
        assert (first.producer_id, second.producer_id) == (1_000, 1_001)
        assert here.member.blocks == 1

    run(scenario)


def test_without_a_controller_there_are_no_ids_and_clients_retry() -> None:
    async def scenario(here: World) -> None:
        here.member.has_controller = False
        assert (await here.init()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(scenario)


def test_writers_of_a_handle_share_one_commit() -> None:
    async def scenario(here: World) -> None:
        begun = await here.stub.BeginTransaction(
            pb.BeginTransactionRequest(transactional_id="t", transaction_timeout_ms=TIMEOUT_MS)
        )
        writer = await here.stub.EnlistWriter(
            pb.EnlistWriterRequest(handle=begun.handle, writer="w")
        )
        await here.add(writer, A0)
        counted = pb.FinishTransactionRequest.Writer(
            writer="w", producer_id=writer.producer_id, producer_epoch=writer.producer_epoch
        )
        finish = pb.FinishTransactionRequest(handle=begun.handle, commit=True, writers=[counted])
        assert (await here.stub.FinishTransaction(finish)).committed
        assert (await here.stub.FinishTransaction(finish)).committed

    run(scenario)


def test_a_batch_is_committed_once() -> None:
    async def scenario(here: World) -> None:
        enlist = pb.EnlistInBatchRequest(
            sink_id="t", query_id="q", writer="w", transaction_timeout_ms=TIMEOUT_MS
        )
        writer = await here.stub.EnlistInBatch(enlist)
        await here.add(writer, A0)
        kept = await here.stub.KeepBatchAlive(pb.KeepBatchAliveRequest(handle=writer.handle))
        assert kept.error_code == ErrorCode.NONE
        counted = pb.FinishTransactionRequest.Writer(
            writer="w", producer_id=writer.producer_id, producer_epoch=writer.producer_epoch
        )
        finish = pb.FinishBatchRequest(sink_id="t", query_id="q", commit=True, writers=[counted])
        assert (await here.stub.FinishBatch(finish)).first
        assert not (await here.stub.FinishBatch(finish)).first
        assert (await here.stub.EnlistInBatch(enlist)).committed

    run(scenario)


def test_metrics_count_sinks() -> None:
    def metrics_of_sinks(here: World) -> dict[tuple[str, ...], float]:
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in here.node.metrics.registry.collect()
            for sample in family.samples
            if "sink" in sample.name and not sample.name.endswith("_created")
        }

    async def scenario(here: World) -> None:
        assert set(metrics_of_sinks(here).values()) == {0}, "an increase from 0 can be seen"
        finish = pb.FinishBatchRequest(sink_id="t", query_id="q", batch_id=1, commit=True)
        for batch_id in (1, 1, 0):
            finish.batch_id = batch_id
            await here.stub.FinishBatch(finish)
        assert metrics_of_sinks(here) == {
            ("tidemark_txn_sinks",): 1,
            ("tidemark_txn_sink_batches_total", "aborted"): 0,
            ("tidemark_txn_sink_batches_total", "committed"): 1,
            ("tidemark_txn_sink_batches_total", "known"): 1,
            ("tidemark_txn_sink_refusals_total", "retired_query"): 0,
            ("tidemark_txn_sink_refusals_total", "stale_batch"): 1,
        }

    run(scenario)


def test_a_sink_is_forgotten() -> None:
    async def scenario(here: World) -> None:
        finish = pb.FinishBatchRequest(sink_id="t", query_id="q", commit=True)
        await here.stub.FinishBatch(finish)
        forget = pb.ForgetSinkRequest(sink_id="t")
        assert (await here.stub.ForgetSink(forget)).forgotten
        assert (await here.stub.FinishBatch(finish)).first

    run(scenario)


def test_a_text_that_is_no_handle_is_refused() -> None:
    async def scenario(here: World) -> None:
        request = pb.EnlistWriterRequest(handle="nonsense", writer="w")
        answer = await here.stub.EnlistWriter(request)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    run(scenario)


def test_a_listing_has_every_id() -> None:
    async def scenario(here: World) -> None:
        await here.init("t")
        await here.init("u")
        request = pb.ListTransactionsRequest(duration_ms_min=-1)
        listed = await here.stub.ListTransactions(request)
        assert sorted(one.transactional_id for one in listed.transactions) == ["t", "u"]

    run(scenario)


def test_a_listing_takes_a_part_of_a_shard_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that has a hundred thousand ids serves others meanwhile."""
    monkeypatch.setattr(list_transactions, "SLICE_IDS", 2)
    monkeypatch.setattr(paging, "SORTED_NAMES", 3)
    slices: list[int] = []

    async def scenario(here: World) -> None:
        names = [f"t{number}" for number in (5, 3, 1, 4, 2, 6, 0)]
        for name in names:
            await here.init(name)
        for shard in here.node.shards.serving().values():
            ask = shard.ask

            async def noted(request: Any, ask: Any = ask) -> Any:
                slices.append(len(getattr(request, "transactional_ids", ())))
                return await ask(request)

            monkeypatch.setattr(shard, "ask", noted)
        request = pb.ListTransactionsRequest(duration_ms_min=-1)
        listed = await here.stub.ListTransactions(request)
        assert [one.transactional_id for one in listed.transactions] == sorted(names)
        request.transactional_id_pattern = "("
        refused = await here.stub.ListTransactions(request)
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    run(scenario)
    assert sum(slices) >= 7
    assert max(slices) == 2


def test_a_listing_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_BYTES", 1)

    async def scenario(here: World) -> None:
        await here.init("t")
        await here.init("u")
        request = pb.ListTransactionsRequest(
            duration_ms_min=-1, states=["Unheard", "Empty"], takes_pages=True
        )
        found = []
        while True:
            page = await here.stub.ListTransactions(request)
            assert list(page.unknown_states) == ["Unheard"]
            found += [[one.transactional_id for one in page.transactions]]
            if not page.HasField("next"):
                break
            request.after.CopyFrom(page.next)
        assert sorted(found) == [["t"], ["u"]]

    run(scenario)


@pytest.mark.parametrize("name", ["", "t"])
def test_descriptions_have_an_error_of_their_own(name: str) -> None:
    async def scenario(here: World) -> None:
        (state,) = await here.describe(name)
        assert state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(scenario)


def test_metrics_count_states_requests_and_markers() -> None:
    async def scenario(here: World) -> None:
        who = await here.init()
        await here.add(who, A0)
        states = {
            sample.labels["state"]: sample.value
            for family in here.node.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "tidemark_txn_transactions"
        }
        assert states == {"Ongoing": 1.0}

    run(scenario)
