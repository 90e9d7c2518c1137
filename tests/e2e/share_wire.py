"""Members of share groups over bare Kafka connections."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from e2e.clusters import Cluster
from e2e.kafka_wire import Wire
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import read_records
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import read_response, write_request
from tidemark.model.errors import ErrorCode
from waiting import wait_for

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
VERSION = 2
_GROUP_RESOURCE = 32
_SET = 0
Batch = tuple[int, ...]
"""First and last offset, and acknowledge types."""
MAY_PASS = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Delivered(NamedTuple):
    """One record that a member has."""

    partition: int
    offset: int
    deliveries: int
    value: bytes


class Part(NamedTuple):
    """Result of one partition."""

    error: ErrorCode
    acknowledged: ErrorCode
    acquired: list[tuple[int, int, int]]
    records: list[Delivered]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def ask(wire: Wire, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
    """One request and its answer, as values."""
    return read_response(key, version, wire.ask(key, version, write_request(key, version, fields)))


def configure_group(wire: Wire, group: str, **configs: str) -> None:
    """Set configuration of a group; keys with underscores."""
    resource = {
        "resource_type": _GROUP_RESOURCE,
        "resource_name": group,
        "configs": [
            {"name": name.replace("_", "."), "config_operation": _SET, "value": value}
            for name, value in configs.items()
        ],
    }
    answer = ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert [one.error_code for one in answer.responses] == [0], answer


def find_coordinator(wire: Wire, group: str) -> None:
    """As every client does first: internal topics are made by it."""
    fields = {"key_type": 0, "coordinator_keys": [group]}

    def is_found() -> bool:
        answer = ask(wire, ApiKey.FIND_COORDINATOR, 4, fields)
        return not answer.coordinators[0].error_code

    wait_for(is_found, "a group coordinator")


class ShareMember:
    """A member with one connection to one broker, which leads what it reads."""

    def __init__(
        self, port: int, group: str, topic: str, *, name: str = "", version: int = VERSION
    ) -> None:
        self.wire = Wire(port)
        self.group = group
        self.topic = topic
        self.name = name or uuid.uuid4().hex
        self.version = version
        self.epoch = 0
        self.member_epoch = 0
        try:
            self.topic_id = self.wire.metadata(topic).topics[0].topic_id
        except BaseException:
            self.wire.socket.close()  # a broker that ends: nobody else has the connection
            raise

    # -- membership

    def join(self) -> list[int]:
        """Join; the partitions that the group assigns."""
        find_coordinator(self.wire, self.group)
        return wait_for(self._assigned, "an assignment")

    def _assigned(self) -> list[int]:
        """What a heartbeat brings; nothing while the coordinator is being found."""
        answer = self.heartbeat()
        code = ErrorCode(answer.error_code)
        assert code in (ErrorCode.NONE, *MAY_PASS), answer
        if code or answer.assignment is None:
            return []
        found = answer.assignment.topic_partitions
        return sorted(number for one in found for number in one.partitions)

    def heartbeat(self) -> Any:
        """One heartbeat; its answer."""
        fields = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.member_epoch,
            "rack_id": None,
            "subscribed_topic_names": [self.topic],
        }
        answer = ask(self.wire, ApiKey.SHARE_GROUP_HEARTBEAT, 1, fields)
        if answer.error_code == 0:
            self.member_epoch = answer.member_epoch
        return answer

    def leave(self) -> None:
        """Leave the group."""
        self.member_epoch = -1
        self.heartbeat()

    # -- fetches

    def fetch_answer(
        self,
        *partitions: int,
        wait_ms: int = 500,
        records: int = 500,
        acks: Mapping[int, Iterable[Batch]] | None = None,
        forget: Iterable[int] = (),
        **more: Any,
    ) -> Any:
        """One ShareFetch; its answer."""
        named: dict[int, Any] = dict.fromkeys(partitions, ()) | dict(acks or {})
        fields = {
            **self._session(),
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 24,
            "max_records": records,
            "batch_size": 500,
            "topics": self._topics(named),
            "forgotten_topics_data": [{"topic_id": self.topic_id, "partitions": list(forget)}],
            **more,
        }
        return self._ask(ApiKey.SHARE_FETCH, fields)

    def fetch(self, *partitions: int, **terms: Any) -> dict[int, Part]:
        """Results by partition."""
        answer = self.fetch_answer(*partitions, **terms)
        assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
        return {
            one.partition_index: part(one) for each in answer.responses for one in each.partitions
        }

    def fetch_until(
        self, *partitions: int, holds: Callable[[dict[int, Part]], object] = bool, **terms: Any
    ) -> dict[int, Part]:
        """Fetch until the results are as wanted: leaders load state first."""
        found: list[dict[int, Part]] = []

        def look() -> bool:
            found[:] = [self.fetch(*(() if found else partitions), **terms)]
            return bool(holds(found[0]))

        wait_for(look, lambda: str(found))
        return found[0]

    def take(self, *partitions: int, **terms: Any) -> list[tuple[int, int, int]]:
        """What is acquired of the first partition that gives records."""
        found = self.fetch_until(
            *partitions, holds=lambda parts: any(one.acquired for one in parts.values()), **terms
        )
        return next(one.acquired for one in found.values() if one.acquired)

    # -- acknowledgements

    def acknowledge(self, *batches: Batch, partition: int = 0) -> ErrorCode:
        """The error for one partition, or of the whole request."""
        fields = {**self._session(), "topics": self._topics({partition: batches})}
        if any(RENEW in batch[2:] for batch in batches):
            fields["is_renew_ack"] = True
        answer = self._ask(ApiKey.SHARE_ACKNOWLEDGE, fields)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def close(self, *batches: Batch) -> ErrorCode:
        """Close the session, with the last acknowledgements."""
        self.epoch = -1
        return self.acknowledge(*batches) if batches else self._close_plainly()

    def _close_plainly(self) -> ErrorCode:
        answer = self._ask(ApiKey.SHARE_ACKNOWLEDGE, {**self._session(), "topics": []})
        return ErrorCode(answer.error_code)

    def _session(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
        }

    def _ask(self, key: ApiKey, fields: Mapping[str, Any]) -> Any:
        answer = ask(self.wire, key, self.version, fields)
        if not answer.error_code:
            self.epoch += 1
        return answer

    def _topics(self, partitions: Mapping[int, Iterable[Batch]]) -> list[dict[str, Any]]:
        return [
            {
                "topic_id": self.topic_id,
                "partitions": [
                    {
                        "partition_index": number,
                        "acknowledgement_batches": [
                            {
                                "first_offset": one[0],
                                "last_offset": one[1],
                                "acknowledge_types": one[2:],
                            }
                            for one in batches
                        ],
                    }
                    for number, batches in partitions.items()
                ],
            }
        ]


def part(one: Any) -> Part:
    """Values of one partition's result."""
    acquired = [
        (each.first_offset, each.last_offset, each.delivery_count) for each in one.acquired_records
    ]
    records = []
    view = memoryview(one.records or b"")
    for position, header in iterate_headers(view):
        whole = view[position : position + header.size_bytes]
        for record in read_records(whole, header):
            for first, last, count in acquired:
                if first <= record.offset <= last:
                    value = bytes(record.value or b"")
                    records.append(Delivered(one.partition_index, record.offset, count, value))
    return Part(ErrorCode(one.error_code), ErrorCode(one.acknowledge_error_code), acquired, records)


class ShareReader:
    """A member that follows leaders and coordinators wherever they go, as clients do, and accepts
    all that it gets.
    """

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self.cluster = cluster
        self.group = group
        self.topic = topic
        self.name = uuid.uuid4().hex
        self.accepted: dict[tuple[int, int], bytes] = {}
        """Values by partition and offset, whose acceptance was answered without an error."""
        self.again: list[Delivered] = []
        """Records that were delivered although they had been accepted."""
        self._at: dict[int, ShareMember] = {}
        self._member_epoch = 0

    @property
    def values(self) -> list[bytes]:
        """All that was accepted."""
        return sorted(self.accepted.values())

    def round(self, wait_ms: int = 200) -> None:
        """Heartbeat, fetch once from each leader, and accept all."""
        for broker in range(1, self.cluster.layout.shape.brokers + 1):
            try:
                self._from(broker, wait_ms)
            except (OSError, EOFError, StopIteration):
                self._forget(broker)

    def _from(self, broker: int, wait_ms: int) -> None:
        member = self._at.get(broker)
        if member is None:
            port = port_of(self.cluster.kafka(broker))
            member = ShareMember(port, self.group, self.topic, name=self.name)
            self._at[broker] = member
        self._heartbeat(member)
        partitions = [
            one.partition
            for one in member.wire.metadata(self.topic).topics[0].partitions
            if one.leader_id == broker
        ]
        answer = member.fetch_answer(*partitions, wait_ms=wait_ms)
        if answer.error_code:
            self._forget(broker)
            return
        for one in (one for each in answer.responses for one in each.partitions):
            self._accept(member, part(one), one.partition_index)

    def _heartbeat(self, member: ShareMember) -> None:
        member.member_epoch = self._member_epoch
        code = ErrorCode(member.heartbeat().error_code)
        lost = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
        self._member_epoch = 0 if code in lost else member.member_epoch

    def _accept(self, member: ShareMember, found: Part, partition: int) -> None:
        batches = [(first, last, ACCEPT) for first, last, _ in found.acquired]
        self.again += [one for one in found.records if (partition, one.offset) in self.accepted]
        if batches and member.acknowledge(*batches, partition=partition) is ErrorCode.NONE:
            for one in found.records:
                self.accepted[partition, one.offset] = one.value

    def _forget(self, broker: int) -> None:
        member = self._at.pop(broker, None)
        if member is not None:
            member.wire.socket.close()

    def end(self) -> None:
        """Close all connections."""
        for broker in tuple(self._at):
            self._forget(broker)
