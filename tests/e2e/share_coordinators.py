"""Share-coordinators as brokers and members see them: heartbeats over Kafka's protocol, states of
share-partitions over gRPC.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from e2e.clusters import Cluster
from e2e.wire import ask, connect
from tidemark.cli.dev.layout import HOST, SHARE_COORDINATOR
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import (
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
from tidemark.runtime.coordinator_client import RETRIED
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc
from waiting import PATIENCE_S, wait_for

ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
_VERSION: Final = 1


def acknowledged(first: int, last: int) -> StateBatch:
    """Offsets that were delivered once and accepted."""
    return StateBatch(Offset(first), Offset(last), ACKNOWLEDGED, 1)


class Coordinators:
    """All share-coordinators of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # -- over gRPC

    def names(self) -> list[str]:
        """Processes that run."""
        return [name for name in self.cluster.running() if name.startswith(SHARE_COORDINATOR)]

    def ask_one(self, name: str, rpc: str, request: Any) -> Any:
        """Return the answer of one replica. Raises grpc.RpcError."""
        port = self.cluster.layout.member(name).ports["grpc"]
        with grpc.insecure_channel(f"{HOST}:{port}") as channel:
            stub: Any = share_pb2_grpc.ShareCoordinatorStub(channel)
            return getattr(stub, rpc)(request, timeout=PATIENCE_S)

    def _answer(self, rpc: str, request: Any) -> tuple[str, Any] | None:
        for name in self.names():
            try:
                answer = self.ask_one(name, rpc, request)
            except grpc.RpcError:
                continue
            if answer.error_code not in RETRIED:
                return name, answer
        return None

    def ask(self, rpc: str, request: Any) -> Any:
        """Return the answer of the replica that owns the shard, once there is one."""
        return wait_for(lambda: self._answer(rpc, request), rpc)[1]

    def owner(self, group_id: str) -> str:
        """Return the process that owns the group's shard."""
        request = pb.DescribeShareGroupRequest(group_id=group_id)
        return wait_for(lambda: self._answer("DescribeGroup", request), "an owner")[0]

    # -- states of share-partitions

    def read(self, key: SharePartitionKey, leader_epoch: int = 0) -> StateRead:
        """Read a state as the leader does."""
        request = wire.write_reads(key.group_id, [ReadState(key, LeaderEpoch(leader_epoch))])
        (found,) = wire.read_read_answers([key], self.ask("ReadStates", request))
        return found

    def write(
        self,
        read: StateRead,
        *batches: StateBatch,
        leader_epoch: int = 0,
        start: int = 0,
    ) -> StateResult:
        """Write batches as the leader that has read the state."""
        write = WriteState(
            read.key, read.state_epoch, LeaderEpoch(leader_epoch), Offset(start), batches
        )
        request = wire.write_writes(read.key.group_id, [write])
        (found,) = wire.read_write_answers([read.key], self.ask("WriteStates", request))
        return found

    def summary(self, key: SharePartitionKey) -> StateSummary:
        """Read a summary."""
        asked = ReadStateSummary(key, LeaderEpoch(0))
        response = self.ask("ReadStateSummaries", wire.write_summaries(key.group_id, [asked]))
        (found,) = wire.read_summary_answers([key], response)
        return found

    # -- over Kafka's protocol

    def beat(
        self, group_id: str, member: str, epoch: int, topics: Sequence[str] | None = None
    ) -> Struct:
        """Send a heartbeat to the first broker, again while its coordinator is not available."""
        fields = {
            "group_id": group_id,
            "member_id": member,
            "member_epoch": epoch,
            "rack_id": None,
            "subscribed_topic_names": None if topics is None else list(topics),
        }

        def answered() -> Struct | None:
            with connect(self.cluster.kafka(1)) as broker:
                if (
                    topics is not None
                ):  # as clients do; the first one of a cluster creates the topic
                    ask(broker, ApiKey.FIND_COORDINATOR, 3, {"key": group_id, "key_type": 0})
                found = ask(broker, ApiKey.SHARE_GROUP_HEARTBEAT, _VERSION, fields)
            return None if ErrorCode(found.error_code) in RETRIED else found

        return wait_for(answered, "an answer to a heartbeat")


class ShareMember:
    """A member of a share group, which knows its epoch and assignment."""

    def __init__(
        self, coordinators: Coordinators, group_id: str, topics: Sequence[str], name: str = "m"
    ) -> None:
        self._coordinators = coordinators
        self.group_id = group_id
        self.name = name
        self.epoch = 0
        self.assigned: dict[TopicId, set[int]] = {}
        self._take(coordinators.beat(group_id, name, 0, topics))

    def _take(self, answer: Struct) -> None:
        assert answer.error_code == ErrorCode.NONE, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = {
                TopicId(bytes(one.topic_id)): set(one.partitions)
                for one in answer.assignment.topic_partitions
            }

    def beat(self) -> None:
        """Send a heartbeat."""
        self._take(self._coordinators.beat(self.group_id, self.name, self.epoch))

    def wait_assigned(self, topic_id: bytes, *partitions: int) -> None:
        """Send heartbeats until these partitions of a topic are assigned, and no others."""

        def has_them() -> bool:
            self.beat()
            return self.assigned == {TopicId(topic_id): set(partitions)}

        wait_for(has_them, lambda: f"assigned: {self.assigned}")

    def leave(self) -> None:
        """Leave the group."""
        answer = self._coordinators.beat(self.group_id, self.name, -1)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
