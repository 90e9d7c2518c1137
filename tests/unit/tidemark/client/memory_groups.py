"""Group coordinators in memory, behind the client's Kafka wire: every request and answer is encoded
and decoded as on the wire; faults on demand.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tidemark.client.config import Address
from tidemark.client.errors import ConnectionLostError, RequestTimedOutError
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.memory_transport import TOPIC_ID, MemoryTransport

Part = tuple[bytes, int]
INTERVAL_MS = 10


@dataclass
class Member:
    epoch: int = 0
    current: set[Part] = field(default_factory=set)
    target: set[Part] = field(default_factory=set)
    told: set[Part] | None = None


class MemoryGroups:
    """Stands for ``Session.kafka()`` and the transport it gives. Assigns partitions evenly, in two
    steps as KIP-848 has it.
    """

    def __init__(self, cluster: MemoryTransport) -> None:
        self.cluster = cluster
        self.members: dict[str, Member] = {}
        self.epoch = 0
        self.offsets: dict[TopicPartition, tuple[int, str]] = {}
        self.epochs: dict[TopicPartition, int] = {}
        """Leader epochs that were committed with offsets."""
        self.faults: dict[ApiKey, deque[ErrorCode | str]] = defaultdict(deque)
        self.asked: list[tuple[ApiKey, Any]] = []
        self.port = 1
        self.heartbeat_s = 0.0
        self.handlers: dict[ApiKey, Callable[[Any], dict[str, Any]]] = {
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.OFFSET_FETCH: self._fetch,
        }

    # ---- the transport's face

    async def kafka(self) -> Any:
        return self

    async def ask_any(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        return await ask(SimpleNamespace(address=Address("any", 9), version=_version))

    async def connection_to(self, address: Address, lane: object) -> Any:
        return SimpleNamespace(address=address, version=_version)

    async def ask(
        self,
        connection: Any,
        api_key: ApiKey,
        fields: Any,
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        version = min(APIS[api_key].max, 99 if version_max is None else version_max)
        body = long_tail.write_request(api_key, version, fields)
        request = long_tail.read_request(api_key, version, memoryview(body))
        self.asked.append((api_key, request))
        if api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            await asyncio.sleep(self.heartbeat_s)
        fault = self.faults[api_key].popleft() if self.faults[api_key] else None
        if fault == "lost":
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        if connection.address.host == "coordinator" and connection.address.port != self.port:
            fault = ErrorCode.NOT_COORDINATOR
        if isinstance(fault, ErrorCode):
            answer = self._refused(api_key, request, fault)
        else:
            answer = self.handlers[api_key](request)
        if fault == "unanswered":
            raise RequestTimedOutError(ErrorCode.REQUEST_TIMED_OUT, "lost on the way back")
        content = long_tail.write_response(api_key, version, answer)
        return long_tail.read_response(api_key, version, memoryview(content))

    def requests(self, api_key: ApiKey) -> list[Any]:
        return [request for key, request in self.asked if key is api_key]

    # ---- what a coordinator does

    def fence(self) -> None:
        """Forget every member, as a session that timed out."""
        self.members.clear()
        self._rebalance()

    def _find(self, request: Any) -> dict[str, Any]:
        found = {"key": request.coordinator_keys[0], "node_id": 1, "port": self.port}
        return {"coordinators": [{**found, "host": "coordinator"}]}

    def _heartbeat(self, request: Any) -> dict[str, Any]:
        member = self.members.get(request.member_id)
        if request.member_epoch < 0:
            self.members.pop(request.member_id, None)
            self._rebalance()
            return {"member_epoch": request.member_epoch}
        if request.member_epoch == 0:
            member = self.members[request.member_id] = Member()
            self._rebalance()
        elif member is None:
            return {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
        elif request.member_epoch != member.epoch:
            return {"error_code": ErrorCode.FENCED_MEMBER_EPOCH}
        if request.topic_partitions is not None:
            owned = {
                (each.topic_id, n) for each in request.topic_partitions for n in each.partitions
            }
            if owned <= member.target:
                member.current = owned
        self._reconcile(member)
        answer: dict[str, Any] = {
            "member_id": request.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": INTERVAL_MS,
        }
        allowed = member.current & member.target
        if member.told != allowed or request.member_epoch == 0:
            member.told = allowed
            numbers = sorted(number for _, number in allowed)
            given = [{"topic_id": TOPIC_ID, "partitions": numbers}] if numbers else []
            answer["assignment"] = {"topic_partitions": given}
        return answer

    def _reconcile(self, member: Member) -> None:
        """What another has to get stays ours until we say that we let it go."""
        if member.current - member.target:
            return
        member.epoch = self.epoch
        others = [each for each in self.members.values() if each is not member]
        member.current |= member.target - {part for each in others for part in each.current}

    def _rebalance(self) -> None:
        self.epoch += 1
        names = sorted(self.members)
        for place, name in enumerate(names):
            self.members[name].target = {
                (TOPIC_ID, part.partition)
                for part in self.cluster.partitions
                if part.partition % len(names) == place
            }

    def _commit(self, request: Any) -> dict[str, Any]:
        code = self._commit_refusal(request)
        topics = []
        for topic in request.topics:
            for each in topic.partitions:
                if not code:
                    part = TopicPartition(topic.name, each.partition_index)
                    self.offsets[part] = (each.committed_offset, each.committed_metadata)
                    self.epochs[part] = each.committed_leader_epoch
            codes = [
                {"partition_index": each.partition_index, "error_code": code}
                for each in topic.partitions
            ]
            topics.append({"name": topic.name, "partitions": codes})
        return {"topics": topics}

    def _commit_refusal(self, request: Any) -> ErrorCode:
        epoch = request.generation_id_or_member_epoch
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH

    def _fetch(self, request: Any) -> dict[str, Any]:
        (group,) = request.groups
        topics = [
            {
                "name": topic.name,
                "partitions": [self._offset(topic.name, n) for n in topic.partition_indexes],
            }
            for topic in group.topics
        ]
        return {"groups": [{"group_id": group.group_id, "topics": topics}]}

    def _offset(self, topic: str, number: int) -> dict[str, Any]:
        offset, metadata = self.offsets.get(TopicPartition(topic, number), (-1, ""))
        return {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": self.epochs.get(TopicPartition(topic, number), -1),
            "metadata": metadata,
        }

    def _refused(self, api_key: ApiKey, request: Any, code: ErrorCode) -> dict[str, Any]:
        if api_key is ApiKey.OFFSET_COMMIT:
            topics = [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": each.partition_index, "error_code": code}
                        for each in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
            return {"topics": topics}
        if api_key is ApiKey.OFFSET_FETCH:
            return {"groups": [{"group_id": request.groups[0].group_id, "error_code": code}]}
        if api_key is ApiKey.FIND_COORDINATOR:
            return {"coordinators": [{"key": request.coordinator_keys[0], "error_code": code}]}
        return {"error_code": code}


def _version(api_key: ApiKey, *, version_max: int | None = None) -> int:
    return min(APIS[api_key].max, 99 if version_max is None else version_max)
