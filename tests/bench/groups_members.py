"""Members of a group for the load: what clients do, without their pauses."""

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from bench.transactions_wire import Link, Loop
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct, read_response
from tidemark.model.errors import ErrorCode

_JOIN: Final = 9
_SYNC: Final = 5
_HEARTBEAT: Final = 4
_LEAVE: Final = 5
_CONSUMER_HEARTBEAT: Final = 1
_SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 60_000
_HEAR_AGAIN_S: Final = 0.05
_LEAVES: Final = -1
_JOINS: Final = 0
_COUNTS: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


class Members:
    """What the members of one group share."""

    def __init__(self, group: str, topic: str, partitions: int, *, heartbeat_s: float) -> None:
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.heartbeat_s = heartbeat_s
        self.requests = 0
        self.members: list[Member] = []
        self.subscription = _subscription(topic)

    def is_settled(self) -> bool:
        """Whether the members that are in the group are in one generation and have every partition
        once.
        """
        inside = [one for one in self.members if one.is_inside]
        if not all(one.is_stable for one in inside):
            return False
        if len({one.generation for one in inside}) != 1:
            return False
        owned = sorted(number for one in inside for number in one.owned)
        return owned == list(range(self.partitions))


class Member(Protocol):
    """Of either protocol."""

    is_inside: bool
    is_stable: bool
    generation: int
    owned: list[int]

    def join(self) -> None:
        """Begin, or begin again."""
        ...

    def leave(self) -> None:
        """Be out, and tell the group."""
        ...


class ClassicMember:
    """JoinGroup, SyncGroup; the leader deals the partitions out in turn."""

    def __init__(self, loop: Loop, link: Link, members: Members) -> None:
        self.is_inside = self.is_stable = False
        self.generation = -1
        self.owned: list[int] = []
        self.link = link
        self._loop, self._members = loop, members
        self._member_id = ""
        members.members.append(self)

    def join(self) -> None:
        """Also when the group rebalances."""
        self.is_inside, self.is_stable = True, False
        protocol = {"name": "range", "metadata": self._members.subscription}
        fields = {
            "session_timeout": _SESSION_MS,
            "rebalance_timeout": _REBALANCE_MS,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [protocol],
            "reason": None,
        }
        self._call(ApiKey.JOIN_GROUP, _JOIN, fields, self._joined)

    def _joined(self, answer: Struct) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            self.join()
            self._let_others_hear()
            return
        _require(answer, "JoinGroup")
        self.generation, self._member_id = answer.generation_id, answer.member_id
        assignments: list[dict[str, object]] = []
        if answer.leader == self._member_id:
            ids = [one.member_id for one in answer.members]
            assignments = [
                {"member_id": one, "assignment": self._dealt(place, len(ids))}
                for place, one in enumerate(ids)
            ]
        fields = {
            "generation_id": self.generation,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
        }
        self._call(ApiKey.SYNC_GROUP, _SYNC, fields, self._synced)

    def _dealt(self, place: int, count: int) -> bytes:
        return _assignment(self._members.topic, range(place, self._members.partitions, count))

    def _synced(self, answer: Struct) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        _require(answer, "SyncGroup")
        self.owned = _assigned(answer.assignment)
        self.is_stable = True

    def leave(self) -> None:
        """The others hear of it at once."""
        fields = {"members": [{"member_id": self._member_id, "group_instance_id": None}]}
        self.is_inside, self.is_stable, self._member_id = False, False, ""
        self._call(ApiKey.LEAVE_GROUP, _LEAVE, fields, self._left)

    def _left(self, answer: Struct) -> None:
        _require(answer, "LeaveGroup")
        self._let_others_hear()

    def _let_others_hear(self) -> None:
        """Heartbeats of all that think it is stable, lest their interval is measured."""
        for one in self._members.members:
            if isinstance(one, ClassicMember) and one.is_stable:
                one.is_stable = False
                one.heartbeat()

    def heartbeat(self) -> None:
        """Until the group rebalances; then join again."""
        fields = {
            "generation_id": self.generation,
            "member_id": self._member_id,
            "group_instance_id": None,
        }
        self._call(ApiKey.HEARTBEAT, _HEARTBEAT, fields, self._heard)

    def _heard(self, answer: Struct) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        _require(answer, "Heartbeat")
        self._loop.after(_HEAR_AGAIN_S, self.heartbeat)

    def commit_fields(self, partitions: int) -> dict[str, object]:
        """Of an OffsetCommit of so many partitions; which they are does not matter."""
        rows = [
            {
                "partition_index": number,
                "committed_offset": 42,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for number in range(partitions)
        ]
        return {
            "group_id": self._members.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self._member_id,
            "group_instance_id": None,
            "topics": [{"name": self._members.topic, "partitions": rows}],
        }

    def _call(
        self,
        key: ApiKey,
        version: int,
        fields: Mapping[str, object],
        on_answer: Callable[[Struct], None],
    ) -> None:
        self._members.requests += 1
        fields = {"group_id": self._members.group, **fields}
        self.link.call(
            key, version, fields, lambda body: on_answer(read_response(key, version, body))
        )


class ConsumerMember:
    """ConsumerGroupHeartbeat (KIP-848), again and again until the group is settled."""

    def __init__(self, loop: Loop, link: Link, members: Members) -> None:
        self.is_inside = self.is_stable = False
        self.generation = -1
        self.owned: list[int] = []
        self._loop, self._link, self._members = loop, link, members
        self._member_id = str(uuid.uuid4())
        self._topic_id = b""
        self._is_beating = False
        members.members.append(self)

    def join(self) -> None:
        """With a full heartbeat."""
        self.is_inside = True
        self._beat(
            _JOINS,
            {
                "rebalance_timeout": _REBALANCE_MS,
                "subscribed_topic_names": [self._members.topic],
                "topic_partitions": [],
            },
        )

    def leave(self) -> None:
        """Its partitions go to others with their next heartbeats."""
        self.is_inside, self.owned = False, []
        self._beat(_LEAVES, {})

    def _beat(self, epoch: int, fields: Mapping[str, object]) -> None:
        self._members.requests += 1
        whole = {
            "group_id": self._members.group,
            "member_id": self._member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **fields,
        }
        key, version = ApiKey.CONSUMER_GROUP_HEARTBEAT, _CONSUMER_HEARTBEAT
        self._link.call(
            key, version, whole, lambda body: self._answered(read_response(key, version, body))
        )

    def _answered(self, answer: Struct) -> None:
        _require(answer, "ConsumerGroupHeartbeat")
        if not self.is_inside:
            return
        self.generation, self.is_stable = answer.member_epoch, True
        if answer.assignment is None:
            self._beat_later()
            return
        given = answer.assignment.topic_partitions
        self.owned = sorted(number for one in given for number in one.partitions)
        # What was taken is confirmed, and what was given reported, at once, as clients do.
        owned = [{"topic_id": one.topic_id, "partitions": one.partitions} for one in given]
        self._beat(self.generation, {"topic_partitions": owned})

    def _beat_later(self) -> None:
        if not self._is_beating:
            self._is_beating = True
            self._loop.after(self._members.heartbeat_s, self._beat_again)

    def _beat_again(self) -> None:
        self._is_beating = False
        if self.is_inside:
            self._beat(self.generation, {})


def _require(answer: Struct, what: str) -> None:
    if answer.error_code:
        raise ConnectionError(f"{what}: {ErrorCode(answer.error_code).name}")


def _text(value: str) -> bytes:
    return _INT16.pack(len(value)) + value.encode()


def _subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription version 0."""
    return _COUNTS.pack(0, 1) + _text(topic) + _INT32.pack(-1)


def _assignment(topic: str, partitions: range) -> bytes:
    """ConsumerProtocolAssignment version 0."""
    numbers = b"".join(map(_INT32.pack, partitions))
    counted = _INT32.pack(len(partitions)) + numbers
    return _COUNTS.pack(0, 1) + _text(topic) + counted + _INT32.pack(-1)


def _assigned(content: bytes) -> list[int]:
    """The partitions of an ``_assignment``."""
    (name_bytes,) = _INT16.unpack_from(content, _COUNTS.size)
    position = _COUNTS.size + _INT16.size + name_bytes
    (count,) = _INT32.unpack_from(content, position)
    return list(struct.unpack_from(f">{count}i", content, position + _INT32.size))
