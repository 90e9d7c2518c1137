"""A whole replica in one process, called over gRPC: its log on a broker that keeps one partition in
memory.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc.aio
import pytest
from share_coordinator.config import SERVICE, ShareCoordinatorConfig
from share_coordinator.shell import broker_calls
from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.rpc import list_groups
from share_coordinator.shell.server import make_server
from tidemark.codec.record_batch import read_header
from tidemark.codec.records import read_records
from tidemark.codec.share_records import decode
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.metadata import SHARE, ShardOwner
from tidemark.model.share_state import (
    UNKNOWN_START,
    DeliveryState,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateResult,
    StateSummary,
    WriteState,
)
from tidemark.runtime import share_state_wire as wire
from tidemark.runtime.clock import Clock
from tidemark.runtime.coordinator import paging
from tidemark.runtime.metrics import Metrics
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc
from unit.share_coordinator.shell.group_brokers import GroupBroker, group_broker
from unit.share_coordinator.worlds import pending
from unit.tidemark.runtime.coordinator.member import Member
from unit.txn_coordinator.marker_images import image_of
from waiting import patience, until, until_told

G = "jobs"
STATE = "__share_group_state"
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED


class World:
    """The node, and its surroundings for a test."""

    def __init__(
        self, node: ShareCoordinatorNode, member: Member, broker: GroupBroker, stub: Any
    ) -> None:
        self.node = node
        self.member = member
        self.broker = broker
        self.stub = stub

    async def serving(self) -> None:
        await until(lambda: bool(self.node.shards.serving()))

    async def beat(self, member: str = "m", epoch: int = 0, *topics: str, group_id: str = G) -> Any:
        return await self.stub.Heartbeat(
            pb.ShareHeartbeatRequest(
                group_id=group_id,
                member_id=member,
                member_epoch=epoch,
                has_subscription=bool(topics),
                subscribed_topic_names=topics,
                client_host="/127.0.0.1",
            )
        )

    async def assigned(self, *topics: str) -> Any:
        """The assignment of a member that joins, once it has one."""
        found = await self.beat("m", 0, *topics)
        assert found.error_code == ErrorCode.NONE, found

        async def has_some() -> bool:
            nonlocal found
            if not found.assignment:
                found = await self.beat("m", found.member_epoch)
            return bool(found.assignment)

        await until_told(has_some, "an assignment")
        return found

    def key(self, topic: str = "orders", partition: int = 0) -> SharePartitionKey:
        return SharePartitionKey(G, self.member.image.topics[topic].topic_id, partition)

    async def read(self, key: SharePartitionKey, leader_epoch: int = 0) -> StateRead:
        request = wire.write_reads(G, [ReadState(key, LeaderEpoch(leader_epoch))])
        (found,) = wire.read_read_answers([key], await self.stub.ReadStates(request))
        return found

    async def write(self, read: StateRead, batch: StateBatch, **changed: int) -> StateResult:
        epochs = {"state_epoch": read.state_epoch, "leader_epoch": 0, **changed}
        write = WriteState(read.key, start_offset=Offset(0), batches=(batch,), **epochs)  # type: ignore[arg-type]
        response = await self.stub.WriteStates(wire.write_writes(G, [write]))
        (found,) = wire.read_write_answers([read.key], response)
        return found

    async def summary(self, key: SharePartitionKey) -> StateSummary:
        request = wire.write_summaries(G, [ReadStateSummary(key, LeaderEpoch(0))])
        (found,) = wire.read_summary_answers([key], await self.stub.ReadStateSummaries(request))
        return found

    async def leave(self) -> None:
        assert (await self.beat("m", -1)).error_code == ErrorCode.NONE

    def delete_topic(self, name: str) -> None:
        topics = {one: topic for one, topic in self.member.image.topics.items() if one != name}
        by_id = {topic.topic_id: topic for topic in topics.values()}
        self.member.show(topics=topics, topics_by_id=by_id)

    def metric(self, name: str) -> float:
        return sum(
            sample.value
            for family in self.node.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name
        )


@asynccontextmanager
async def world(*, serves_groups: bool = True, **options: int) -> AsyncIterator[World]:
    quick: dict[str, Any] = {"group_share_assignment_interval_ms": 1, **options}
    config = ShareCoordinatorConfig(coordinator_id=1, grpc_listen="127.0.0.1:0", **quick)
    async with group_broker(serves_groups=serves_groups) as broker:
        node = ShareCoordinatorNode(config, Clock(), Metrics(SERVICE))
        leaders = {STATE: (1,), "__consumer_offsets": (1,), "orders": (1, 1), "other": (1,)}
        image = image_of(1, {1: broker.endpoint}, leaders)
        by_id = {topic.topic_id: topic for topic in image.topics.values()}
        shards = {SHARE: (ShardOwner(0, 1, 1),)}
        member = Member(SHARE, replace(image, topics_by_id=by_id, shards=shards))
        stop = asyncio.Event()
        async with (
            make_server(config.grpc_listen, node) as grpc_server,
            grpc.aio.insecure_channel(str(grpc_server.address)) as channel,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(node.run(member, stop))
            stub: Any = share_pb2_grpc.ShareCoordinatorStub(channel)
            try:
                yield World(node, member, broker, stub)
            finally:
                stop.set()


def run(
    scenario: Callable[[World], Awaitable[None]], *, serves_groups: bool = True, **options: int
) -> None:
    async def main() -> None:
        async with world(serves_groups=serves_groups, **options) as here, patience():
            await here.serving()
            await scenario(here)

    asyncio.run(main())


BATCH = StateBatch(Offset(3), Offset(5), ACKNOWLEDGED, 1)


def test_a_member_is_assigned_partitions_whose_state_begins() -> None:
    async def scenario(here: World) -> None:
        found = await here.assigned("orders")
        assert [list(one.partitions) for one in found.assignment] == [[0, 1]]
        assert here.broker.reserved == [(G, 1)]
        read = await here.read(here.key())
        assert (read.error_code, read.start_offset) == (ErrorCode.NONE, UNKNOWN_START)

    run(scenario)


def test_what_a_leader_writes_is_read_after_a_change_of_owner() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        read = await here.read(here.key(), leader_epoch=4)
        assert (await here.write(read, BATCH, leader_epoch=4)).error_code is ErrorCode.NONE
        here.node.shards.fenced(0, here.member.owner_epoch)
        await until(lambda: here.member.owner_epoch == 2)
        await here.serving()
        assert (await here.read(here.key(), leader_epoch=4)).batches == (BATCH,)
        assert (await here.summary(here.key())).start_offset == 0

    run(scenario)


def test_both_fences_refuse_a_write() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        read = await here.read(here.key(), leader_epoch=4)
        old_leader = await here.write(read, BATCH, leader_epoch=3)
        old_life = await here.write(read, BATCH, leader_epoch=4, state_epoch=read.state_epoch - 1)
        assert old_leader.error_code is ErrorCode.FENCED_LEADER_EPOCH
        assert old_life.error_code is ErrorCode.FENCED_STATE_EPOCH

    run(scenario)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE),
    ],
)
def test_a_group_exists_once_its_id_is_reserved(code: ErrorCode, answer: ErrorCode) -> None:
    async def scenario(here: World) -> None:
        here.broker.codes = [code]
        assert (await here.beat("m", 0, "orders")).error_code == answer

    run(scenario)


def test_brokers_of_a_release_without_share_groups_reserve_nothing() -> None:
    async def scenario(here: World) -> None:
        found = await here.beat("m", 0, "orders")
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario, serves_groups=False)


def test_a_deleted_group_gives_its_id_back_and_its_windows_are_dropped() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        delete = pb.DeleteShareGroupRequest(group_id=G)
        refused = await here.stub.DeleteGroup(delete)
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
        await here.leave()
        assert (await here.stub.DeleteGroup(delete)).error_code == ErrorCode.NONE
        assert here.broker.released == [(G, 1)]
        await until(lambda: here.broker.dropped)
        (topic,) = here.broker.dropped[0].topics
        assert (topic.topic_id, list(topic.partitions)) == (here.key().topic_id, [0, 1])
        gone = await here.read(here.key())
        assert gone.error_code is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario)


def test_an_id_that_is_used_again_is_not_released_later() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        await here.leave()
        here.broker.releases_ids = False
        delete = pb.DeleteShareGroupRequest(group_id=G)
        deleting = here.stub.DeleteGroup(delete)
        await until(lambda: here.broker.released)
        await here.assigned("orders")
        assert here.broker.reserved == [(G, 1), (G, 1)]
        assert not here.node.calls._releases
        assert (await deleting).error_code == ErrorCode.NONE

    run(scenario)


def test_a_group_is_deleted_although_nobody_releases_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_calls, "RELEASE_WAIT_S", 0.1)

    async def scenario(here: World) -> None:
        await here.assigned("orders")
        await here.leave()
        here.broker.releases_ids = False
        delete = pb.DeleteShareGroupRequest(group_id=G)
        assert (await here.stub.DeleteGroup(delete)).error_code == ErrorCode.NONE
        here.broker.releases_ids = True
        await until(lambda: not here.node.calls._releases)

    run(scenario)


def test_the_state_of_a_deleted_topic_is_deleted() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders", "other")
        key = here.key()
        assert here.metric("tidemark_share_states") == 3
        here.delete_topic("orders")
        await until(lambda: here.metric("tidemark_share_states") == 1)
        gone = await here.read(key)
        assert gone.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_group_configures_its_heartbeats() -> None:
    async def scenario(here: World) -> None:
        found = await here.assigned("orders")
        assert found.heartbeat_interval_ms == 5_000
        here.member.show(group_configs={G: {"share.heartbeat.interval.ms": "7000"}})
        assert (await here.beat("m", found.member_epoch)).heartbeat_interval_ms == 7_000

    run(scenario)


def test_old_records_of_the_state_topic_are_deleted() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        read = await here.read(here.key())
        for offset in range(4):
            one = StateBatch(Offset(offset), Offset(offset), ACKNOWLEDGED, 1)
            assert (await here.write(read, one)).error_code is ErrorCode.NONE
        await here.leave()
        await here.stub.DeleteGroup(pb.DeleteShareGroupRequest(group_id=G))
        await until(lambda: here.broker.store.partition.log_start > 0)
        assert here.metric("tidemark_share_state_records_needed") <= 1

    run(scenario, share_coordinator_state_topic_prune_interval_ms=1_000)


def test_offsets_are_described_reset_and_forgotten() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        await here.leave()
        topic_id = here.key().topic_id
        offset = pb.AlterShareOffsetsRequest.Offset(partition=1, start_offset=9)
        topic = pb.AlterShareOffsetsRequest.Topic(
            topic_id=topic_id, topic="orders", offsets=[offset]
        )
        await here.stub.AlterOffsets(pb.AlterShareOffsetsRequest(group_id=G, topics=[topic]))
        describe = pb.DescribeShareOffsetsRequest(group_id=G, all_topics=True)
        (found,) = (await here.stub.DescribeOffsets(describe)).topics
        assert [(one.partition, one.start_offset) for one in found.offsets] == [(0, -1), (1, 9)]
        gone = pb.ShareTopicPartitions(topic_id=topic_id, topic="orders")
        await here.stub.DeleteOffsets(pb.DeleteShareOffsetsRequest(group_id=G, topics=[gone]))
        assert not (await here.stub.DescribeOffsets(describe)).topics

    run(scenario)


def test_groups_are_described_and_listed() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        described = await here.stub.DescribeGroup(pb.DescribeShareGroupRequest(group_id=G))
        assert (described.state, described.assignor_name) == ("Stable", "simple")
        (member,) = described.members
        assert (member.member_id, list(member.subscribed_topic_names)) == ("m", ["orders"])
        (listed,) = (await here.stub.ListGroups(pb.ListShareGroupsRequest())).groups
        assert (listed.group_id, listed.state) == (G, "Stable")
        empty = await here.stub.ListGroups(pb.ListShareGroupsRequest(states=["empty"]))
        assert not empty.groups

    run(scenario)


def test_a_listing_takes_a_part_of_a_shard_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that has a hundred thousand groups serves others meanwhile."""
    monkeypatch.setattr(list_groups, "SLICE_GROUPS", 2)
    monkeypatch.setattr(paging, "SORTED_NAMES", 3)
    slices: list[int] = []

    async def scenario(here: World) -> None:
        names = [f"g{number}" for number in (5, 3, 1, 4, 2, 6, 0)]
        for name in names:
            await here.beat("m", 0, "orders", group_id=name)
        for shard in here.node.shards.serving().values():
            ask = shard.ask

            async def noted(request: Any, ask: Any = ask) -> Any:
                slices.append(len(getattr(request, "group_ids", ())))
                return await ask(request)

            monkeypatch.setattr(shard, "ask", noted)
        listed = await here.stub.ListGroups(pb.ListShareGroupsRequest())
        assert sorted(one.group_id for one in listed.groups) == sorted(names)

    run(scenario)
    assert sum(slices) == 7
    assert max(slices) == 2


def test_groups_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_BYTES", 1)

    async def scenario(here: World) -> None:
        for group_id in ("one", "two"):
            await here.beat("m", 0, "orders", group_id=group_id)
        request = pb.ListShareGroupsRequest(takes_pages=True)
        found = []
        while True:
            page = await here.stub.ListGroups(request)
            found += [[one.group_id for one in page.groups]]
            if not page.HasField("next"):
                break
            request.after.CopyFrom(page.next)
        assert sorted(found) == [["one"], ["two"]]

    run(scenario)


def test_another_coordinators_group_is_refused() -> None:
    async def scenario(here: World) -> None:
        here.member.show(shards={SHARE: (ShardOwner(0, 2, 9),)})
        refused = await here.beat("m", 0, "orders")
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
        refused = await here.stub.ReadStates(pb.ReadShareStatesRequest(group_id=G))
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
        lags = await here.stub.ReportLags(pb.ReportShareLagsRequest(group_id=G))
        assert lags.error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("Heartbeat", pb.ShareHeartbeatRequest(group_id="", member_id="m")),
        ("Heartbeat", pb.ShareHeartbeatRequest(group_id=G, member_id="m", member_epoch=-9)),
        ("ReadStates", pb.ReadShareStatesRequest(group_id=G, parts=[{"topic_id": b"x"}])),
        (
            "WriteStates",
            pb.WriteShareStatesRequest(
                group_id=G, parts=[{"topic_id": bytes(16), "batches": [{"delivery_state": 77}]}]
            ),
        ),
        ("AlterOffsets", pb.AlterShareOffsetsRequest(group_id=G, topics=[{"topic_id": b""}])),
        (
            "ReportLags",
            pb.ReportShareLagsRequest(group_id=G, lags=[{"topic_id": bytes(16), "records": -1}]),
        ),
    ],
)
def test_requests_that_are_invalid_are_refused(rpc: str, request_: Any) -> None:
    async def scenario(here: World) -> None:
        refused = await getattr(here.stub, rpc)(request_)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message
        assert (await here.beat("m", 0, "orders")).error_code == ErrorCode.NONE

    run(scenario)


def test_lags_reach_the_group() -> None:
    async def scenario(here: World) -> None:
        found = await here.assigned("orders")
        lag = pb.ReportShareLagsRequest.Lag(topic_id=here.key().topic_id, partition=0, records=9)
        answer = await here.stub.ReportLags(pb.ReportShareLagsRequest(group_id=G, lags=[lag]))
        assert answer.error_code == ErrorCode.NONE
        assert (await here.beat("m", found.member_epoch)).error_code == ErrorCode.NONE

    run(scenario)


def test_metrics_count_groups_members_and_states() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        names = ("groups", "members", "states", "shards_serving")
        assert [here.metric(f"tidemark_share_{name}") for name in names] == [1, 1, 2, 1]
        assert here.metric("tidemark_share_requests_total") >= 1

    run(scenario)


async def with_pending(here: World) -> StateRead:
    """A share-partition with an acknowledgement of producer 7's transaction."""
    await here.assigned("orders")
    read = await here.read(here.key())
    write = WriteState(
        read.key, read.state_epoch, LeaderEpoch(0), Offset(0), (), pending=(pending(3, 5),)
    )
    await here.stub.WriteStates(wire.write_writes(G, [write]))
    assert (await here.read(here.key())).pending == (pending(3, 5),)
    return read


END = pb.EndShareTransactionRequest(shard=0, producer_id=7, open_from=1, commit=True)


def test_the_end_of_a_transaction_finishes_its_records_and_leaders_are_notified() -> None:
    async def scenario(here: World) -> None:
        await with_pending(here)
        here.broker.fails_notices = 2
        assert (await here.stub.EndTransaction(END)).error_code == ErrorCode.NONE
        assert (await here.read(here.key())).batches == (BATCH,)
        await until(lambda: here.broker.ended)
        (ended,) = here.broker.ended
        assert (ended.producer_id, ended.producer_epoch, ended.commit) == (7, 0, True)
        assert ended.groups[0].topics[0].topic_id == here.key().topic_id

    run(scenario)


def test_the_next_owner_notifies_leaders_again() -> None:
    async def scenario(here: World) -> None:
        await with_pending(here)
        await here.stub.EndTransaction(END)
        await until(lambda: len(here.broker.ended) == 1)
        here.node.shards.fenced(0, here.member.owner_epoch)
        await until(lambda: len(here.broker.ended) == 2)
        await here.serving()
        assert (await here.read(here.key())).batches == (BATCH,)

    run(scenario)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"shard": 1}, ErrorCode.NOT_COORDINATOR),
        ({"producer_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"open_from": 0}, ErrorCode.INVALID_REQUEST),
        ({"open_from": 2**15 + 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_end_that_cannot_be_is_refused(change: dict[str, int], code: ErrorCode) -> None:
    async def scenario(here: World) -> None:
        fields: dict[str, Any] = {"shard": 0, "producer_id": 7, "open_from": 1, **change}
        request = pb.EndShareTransactionRequest(**fields)
        assert (await here.stub.EndTransaction(request)).error_code == code

    run(scenario)


def records_of(here: World) -> list[object]:
    return [
        decode(one.key, one.value)
        for batch in here.broker.store.partition.batches
        if not read_header(batch).is_control
        for one in read_records(batch, read_header(batch))
        if one.key is not None
    ]


def test_writes_of_many_share_partitions_are_one_append() -> None:
    async def scenario(here: World) -> None:
        await here.assigned("orders")
        keys = [here.key("orders", partition) for partition in (0, 1)]
        reads = [await here.read(key) for key in keys]
        appends, records = len(here.broker.store.appends), len(records_of(here))
        writes = [
            WriteState(read.key, read.state_epoch, LeaderEpoch(0), Offset(0), (BATCH,))
            for read in reads
        ]
        await here.stub.WriteStates(wire.write_writes(G, writes))
        assert (len(here.broker.store.appends) - appends, len(records_of(here)) - records) == (1, 2)

    run(scenario)
