"""A KIP-848 group with its log, its topics and its clients, all in memory."""

from collections.abc import Collection, Iterable, Mapping

from broker.core.groups.consumer.group import ConsumerGroup, Decided
from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupSettings,
)
from tidemark.codec.group_records import decode, encode
from tidemark.codec.group_records_consumer import ConsumerRecord
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId, WallMs
from tidemark.protocol.shard import Moment

SESSION_MS = 45_000
REBALANCE_MS = 60_000

Partition = tuple[TopicId, int]


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


class FakeTopics:
    """Topics that tests change freely. Ids are never used again."""

    def __init__(self, **counts: int) -> None:
        self.position = 0
        self._created = 0
        self._topics: dict[str, tuple[TopicId, int]] = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int) -> None:
        """Create a topic, or give it more partitions."""
        self.position += 1
        if name not in self._topics:
            self._created += 1
            self._topics[name] = (topic_id(self._created), 0)
        self._topics[name] = (self._topics[name][0], count)

    def delete(self, name: str) -> None:
        self.position += 1
        self._topics.pop(name, None)

    def topic_id_of(self, name: str) -> TopicId | None:
        found = self._topics.get(name)
        return found[0] if found is not None else None

    def name_of(self, topic_id: TopicId) -> str | None:
        return next((name for name, (one, _) in self._topics.items() if one == topic_id), None)

    def partition_count(self, name: str) -> int:
        found = self._topics.get(name)
        return found[1] if found is not None else 0

    def names(self) -> Collection[str]:
        return self._topics.keys()

    def all(self, *names: str) -> set[Partition]:
        """All partitions of these topics."""
        return {
            (one, partition)
            for name in names
            for one, count in [self._topics[name]]
            for partition in range(count)
        }


class World:
    """One group. Its coordinator's decisions are replayed at once, as by the runtime."""

    def __init__(self, settings: GroupSettings | None = None, **counts: int) -> None:
        self.settings = settings or GroupSettings()
        self.topics = FakeTopics(**counts)
        self.group = ConsumerGroup("g")
        self.log: list[ConsumerRecord] = []
        self.now = 1_000
        self.hidden: set[str] = set()
        """Topics that the sender of a heartbeat may not describe."""

    @property
    def moment(self) -> Moment:
        return Moment(InstantMs(self.now), WallMs(1_700_000_000_000 + self.now))

    def append(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            self.log.append(record)
            self.group.replay(record)
        self.group.check()

    def ask(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply:
        records, reply = self.decide(request)
        assert reply.error_code is ErrorCode.NONE or not records
        self.append(records)
        return reply

    def decide(self, request: ConsumerGroupHeartbeat) -> Decided:
        """Decide a heartbeat, and append nothing."""
        return self.group.heartbeat(
            request,
            self.moment,
            self.topics,
            self.settings,
            lambda name: name not in self.hidden,
        )

    def beat(self, member_id: str, epoch: int, **said: object) -> ConsumerGroupHeartbeatReply:
        return self.ask(heartbeat(member_id, epoch, **said))

    def join(self, member_id: str, *topics: str, **said: object) -> ConsumerGroupHeartbeatReply:
        return self.ask(joining(member_id, *topics, **said))

    def sleep(self, ms: int) -> None:
        """Advance the time; the runtime wakes the group at its deadlines."""
        end = self.now + ms
        while (due := self.group.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.append(self.group.wake(self.moment))
        self.now = end

    def reload(self) -> None:
        """Let another coordinator take over, which has only the log, as bytes."""
        self.group = replayed(self.log)
        self.group.loaded(self.moment, self.settings)

    def epoch_of(self, member_id: str) -> int:
        return self.group.logged.members[member_id].member_epoch

    def has(self, member_id: str) -> set[Partition]:
        """Return the partitions that the coordinator lets a member use."""
        return flat_assignment(self.group.logged.members[member_id].assigned)

    def settle(self, *member_ids: str, rounds: int = 6) -> None:
        """Let clients follow all replies at once, until nothing changes."""
        for _ in range(rounds):
            for member_id in member_ids:
                owned = said(self.has(member_id))
                self.beat(member_id, self.epoch_of(member_id), topic_partitions=owned)


def heartbeat(member_id: str, epoch: int, **said: object) -> ConsumerGroupHeartbeat:
    values: dict[str, object] = {
        "group_id": "g",
        "member_id": member_id,
        "new_member_id": f"new-{member_id}",
        "member_epoch": epoch,
        "requester": Requester("User:me", "127.0.0.1"),
        "client_id": "client",
        "client_host": "/127.0.0.1",
        **said,
    }
    return ConsumerGroupHeartbeat(**values)  # type: ignore[arg-type]


def joining(member_id: str, *topics: str, **said: object) -> ConsumerGroupHeartbeat:
    values: dict[str, object] = {
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": topics,
        "topic_partitions": (),
        **said,
    }
    return heartbeat(member_id, 0, **values)


def said(partitions: Iterable[Partition]) -> tuple[TopicIdPartitions, ...]:
    """Return partitions as a heartbeat lists them."""
    return tuple(TopicIdPartitions(one, (partition,)) for one, partition in sorted(partitions))


def heard(reply: ConsumerGroupHeartbeatReply) -> set[Partition]:
    """Return the partitions in a reply."""
    assert reply.assignment is not None
    return {(topic.topic_id, number) for topic in reply.assignment for number in topic.partitions}


def flat_assignment(assignment: object) -> set[Partition]:
    assert isinstance(assignment, Mapping)
    return {(one, number) for one, numbers in assignment.items() for number in numbers}


def replayed(log: Iterable[ConsumerRecord]) -> ConsumerGroup:
    """Return a group from the bytes of its log."""
    group = ConsumerGroup("g")
    for record in log:
        again = decode(*encode(record))
        assert again == record
        group.replay(again)
    group.check()
    return group


def compacted(log: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
    """Return a compacted log: the last record of each key, no tombstones."""
    last: dict[bytes, ConsumerRecord] = {}
    for record in log:
        key, _ = encode(record)
        last.pop(key, None)
        last[key] = record
    return [record for record in last.values() if record.value is not None]
