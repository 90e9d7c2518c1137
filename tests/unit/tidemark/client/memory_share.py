"""Share groups in memory, behind the client's Kafka wire: every request and answer is encoded and
decoded as on the wire; faults on demand. One broker leads everything; each record has one of
Kafka's states, and no lock ends by itself.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from tidemark.client.config import Address
from tidemark.client.errors import ConnectionLostError
from tidemark.codec.record_batch import read_header
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.own_fields import OWN_SHARE_FEATURE
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.memory_transport import TOPIC_ID, MemoryTransport

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 30_000
INTERVAL_MS = 10
FETCH = ApiKey.SHARE_FETCH


class MemoryShare:
    """Stands for ``Session.kafka()`` and the transport it gives; topic ``t`` of ``cluster``."""

    def __init__(self, cluster: MemoryTransport) -> None:
        self.cluster = cluster
        self.link: SimpleNamespace | None = None
        """Connection of the share session."""
        self.members: dict[str, int] = {}
        self.session_epoch: int | None = None
        self.session: set[int] = set()
        self.counts: dict[tuple[int, int], int] = defaultdict(int)
        self.acquired: set[tuple[int, int]] = set()
        self.done: dict[tuple[int, int], int] = {}
        """Final type of acknowledgement by partition and offset."""
        self.faults: dict[ApiKey, deque[ErrorCode | str]] = defaultdict(deque)
        self.refusals: deque[ErrorCode] = deque()
        """Errors of the next acknowledgements, by partition."""
        self.features: set[str] = {OWN_SHARE_FEATURE}
        self.asked: list[tuple[ApiKey, Any]] = []
        self.handlers: dict[ApiKey, Callable[[Any], dict[str, Any]]] = {
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.SHARE_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
        }

    # -- the transport's face

    async def kafka(self) -> Any:
        return self

    async def ask_any(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        return await ask(SimpleNamespace(address=Address("any", 9), version=_version))

    async def connection_to(self, address: Address, lane: object) -> Any:
        return SimpleNamespace(address=address, version=_version)

    async def connection(self, broker_id: int, lane: object) -> Any:
        if self.link is None or self.link.is_lost:
            address = Address("broker", broker_id)
            self.link = SimpleNamespace(
                address=address,
                version=_version,
                is_lost=False,
                has_feature=self.features.__contains__,
            )
        return self.link

    async def ask(
        self,
        connection: Any,
        api_key: ApiKey,
        fields: Any,
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        version = APIS[api_key].max
        body = long_tail.write_request(api_key, version, fields)
        request = long_tail.read_request(api_key, version, memoryview(body))
        self.asked.append((api_key, request))
        await asyncio.sleep(0)
        fault = self.faults[api_key].popleft() if self.faults[api_key] else None
        if fault == "lost":
            self.end_session()
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        if isinstance(fault, ErrorCode):
            self.end_session()
            answer: dict[str, Any] = {"error_code": int(fault)}
        else:
            answer = self.handlers[api_key](request)
            if api_key is FETCH and not self._has_records(answer):
                await self._long_poll(request.max_wait)
        content = long_tail.write_response(api_key, version, answer)
        return long_tail.read_response(api_key, version, memoryview(content))

    def _has_records(self, answer: dict[str, Any]) -> bool:
        rows = [row for topic in answer.get("responses", ()) for row in topic["partitions"]]
        return any("records" in row for row in rows)

    async def _long_poll(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await asyncio.Event().wait()
        except TimeoutError:
            return

    def requests(self, api_key: ApiKey) -> list[Any]:
        return [request for key, request in self.asked if key is api_key]

    def lose_link(self) -> None:
        """Lose the connection while no request is under way."""
        assert self.link is not None, "there is one"
        self.link.is_lost = True
        self.end_session()

    def end_session(self) -> None:
        """Release all that is acquired."""
        self.session_epoch = None
        self.session.clear()
        self.acquired.clear()

    # -- the coordinator

    def _find(self, request: Any) -> dict[str, Any]:
        found = {"key": request.coordinator_keys[0], "node_id": 1, "port": 1}
        return {"coordinators": [{**found, "host": "coordinator"}]}

    def _heartbeat(self, request: Any) -> dict[str, Any]:
        if request.member_epoch < 0:
            self.members.pop(request.member_id, None)
            return {"member_epoch": request.member_epoch}
        if request.member_epoch and request.member_id not in self.members:
            return {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
        answer: dict[str, Any] = {
            "member_id": request.member_id,
            "member_epoch": 1,
            "heartbeat_interval": INTERVAL_MS,
        }
        if request.member_epoch == 0:
            self.members[request.member_id] = 1
            numbers = sorted(at.partition for at in self.cluster.logs)
            topics = [{"topic_id": TOPIC_ID, "partitions": numbers}]
            answer["assignment"] = {"topic_partitions": topics}
        return answer

    # -- the leader

    def _fetch(self, request: Any) -> dict[str, Any]:
        refused = self._session(request)
        if refused is not None:
            return refused
        self.session |= {one.partition_index for one in _partitions(request)}
        for topic in request.forgotten_topics_data:
            self.session -= set(topic.partitions)
        rows = self._acknowledged(request)
        left = request.max_records
        for number in sorted(self.session):
            offsets = self._acquire(number, left)
            left -= len(offsets)
            row = rows.setdefault(number, {"partition_index": number})
            if offsets:
                row["records"] = b"".join(self.cluster.logs[TopicPartition("t", number)].batches)
                row["acquired_records"] = [
                    {
                        "first_offset": one,
                        "last_offset": one,
                        "delivery_count": self.counts[number, one],
                    }
                    for one in offsets
                ]
        return {
            "acquisition_lock_timeout": LOCK_MS,
            "responses": [{"topic_id": TOPIC_ID, "partitions": list(rows.values())}],
        }

    def _acknowledge(self, request: Any) -> dict[str, Any]:
        refused = self._session(request)
        if refused is not None:
            return refused
        rows = [
            {
                "partition_index": row["partition_index"],
                "error_code": row["acknowledge_error_code"],
            }
            for row in self._acknowledged(request).values()
        ]
        if request.share_session_epoch == -1:
            self.end_session()
        return {
            "acquisition_lock_timeout": LOCK_MS,
            "responses": [{"topic_id": TOPIC_ID, "partitions": rows}],
        }

    def _session(self, request: Any) -> dict[str, Any] | None:
        epoch = request.share_session_epoch
        if epoch == 0:
            self.end_session()
            self.session_epoch = 1
            return None
        if self.session_epoch is None:
            return {"error_code": ErrorCode.SHARE_SESSION_NOT_FOUND}
        if epoch == -1:
            return None
        if epoch != self.session_epoch:
            return {"error_code": ErrorCode.INVALID_SHARE_SESSION_EPOCH}
        self.session_epoch += 1
        return None

    def _acknowledged(self, request: Any) -> dict[int, dict[str, Any]]:
        rows: dict[int, dict[str, Any]] = {}
        for one in _partitions(request):
            if not one.acknowledgement_batches:
                continue
            number = one.partition_index
            types = {
                offset: kinds[0] if len(kinds) == 1 else kinds[offset - batch.first_offset]
                for batch in one.acknowledgement_batches
                for kinds in [batch.acknowledge_types]
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            code = self.refusals.popleft() if self.refusals else self._apply(number, types)
            if code is ErrorCode.NONE:
                self._uncount(number, one.acknowledgement_batches)
            rows[number] = {"partition_index": number, "acknowledge_error_code": int(code)}
        return rows

    def _uncount(self, number: int, batches: list[Any]) -> None:
        for batch in batches:
            if batch.is_unseen:
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    self.counts[number, offset] -= 1

    def _apply(self, number: int, types: dict[int, int]) -> ErrorCode:
        if not all((number, offset) in self.acquired for offset in types):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in types.items():
            if kind == RENEW:
                continue
            self.acquired.discard((number, offset))
            if kind != RELEASE:
                self.done[number, offset] = kind
        return ErrorCode.NONE

    def _acquire(self, number: int, records_max: int) -> list[int]:
        log = self.cluster.logs[TopicPartition("t", number)]
        offsets = [
            offset
            for batch in log.batches
            for header in [read_header(batch)]
            for offset in range(header.base_offset, header.last_offset + 1)
            if (number, offset) not in self.acquired and (number, offset) not in self.done
        ][:records_max]
        for offset in offsets:
            self.acquired.add((number, offset))
            self.counts[number, offset] += 1
        return offsets


def _partitions(request: Any) -> list[Any]:
    return [one for topic in request.topics for one in topic.partitions]


def _version(api_key: ApiKey, *, version_max: int | None = None) -> int:
    return APIS[api_key].max
