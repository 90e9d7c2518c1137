"""Members of a share group over Kafka's wire, with the behaviour of a careless application.

A member sends heartbeats to any broker, and keeps a share session with each broker that leads a
partition of its assignment. It accepts most records, releases or rejects some, renews some locks,
forgets some until their locks expire, and at times it dies without closing anything. Some records
it releases with Tidemark's own fields: with a delay, or as ones that it has never received.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.core.share.acknowledgement import AcknowledgeType
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.share_state import SharePartitionKey

from sim.checkers import require
from sim.cluster.client import Client, stored_batches
from sim.cluster.txn_client import AnyBroker, TailClient

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.share_world import ShareWorld

GROUP: Final = "sharers"
HEARTBEAT: Final = (ApiKey.SHARE_GROUP_HEARTBEAT, 1)
FETCH: Final = (ApiKey.SHARE_FETCH, 2)
ACKNOWLEDGE: Final = (ApiKey.SHARE_ACKNOWLEDGE, 2)
FINAL_EPOCH: Final = -1
TWICE: Final = 0.02
"""Probability that a member acknowledges a record again."""
RENEWED_MS: Final = (10, 200, 250)
"""Times for which a member works before it renews a lock, and after that."""
SESSION_LOST: Final = frozenset(
    {
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
"""Errors after which a member looks again: at the leader, at the metadata, at the records."""


class Delivered(NamedTuple):
    """A record in the hands of a member."""

    offset: int
    state_epoch: int
    """That of the durable state when it was delivered."""


class Choice(NamedTuple):
    """Acknowledgement of a record."""

    kind: AcknowledgeType
    delay_ms: int = 0
    is_unseen: bool = False

    def __str__(self) -> str:
        """Return one word."""
        words = {True: "UNSEEN", False: "DELAYED" if self.delay_ms else self.kind.name}
        return words[self.is_unseen]


@dataclass
class Hands:
    """Records of one partition that a member has, and acknowledgements to send with the next
    request.
    """

    choices: dict[Delivered, Choice] = field(default_factory=dict)
    later: list[tuple[int, Delivered, Choice]] = field(default_factory=list)
    """Decisions with the time at which they are made."""

    def decide(self, now: int) -> None:
        """Make the decisions whose time has come."""
        for at, one, choice in self.later:
            if at <= now:
                self.choices[one] = choice
        self.later = [due for due in self.later if due[0] > now]


class Session:
    """Share session of a member with one broker."""

    def __init__(self, world: "ShareWorld", broker: str) -> None:
        self.broker = broker
        self.client = _OneBroker(world, broker)
        self.epoch = 0
        self.topics: list[SimTopic] = []
        """Partitions of the session."""
        self.hands: dict[str, Hands] = {}
        """By title of the topic."""

    def begins_again(self) -> None:
        """Forget a session that the broker does not have, and what was acquired in it."""
        self.epoch = 0
        self.topics = []
        self.hands = {}
        self.client.disconnect()


class _OneBroker(TailClient):
    """Connection to one broker."""

    def __init__(self, world: "ShareWorld", broker: str) -> None:
        super().__init__(world, world.topics[0])
        self._name = broker

    def _find_leader(self) -> str:
        return self._name


class ShareMember:
    """Member that comes, works, leaves or dies, and comes again under another id."""

    def __init__(self, world: "ShareWorld", name: str) -> None:
        self.name = name
        self._world = world
        self._any = AnyBroker(world, world.topics[0])
        self._leaders = {one.title: Client(world, one) for one in world.inputs}
        self._lives = 0
        self._pace_ms = world.dice.pick((10, 30, 60))
        self._leaves_silently = world.dice.chance(0.5)
        self._begin_life()

    def _begin_life(self) -> None:
        self._lives += 1
        self._member_id = f"{self.name}-{self._lives}"
        self._member_epoch = 0
        self._assigned: set[tuple[bytes, int]] = set()
        self._sessions: dict[str, Session] = {}
        self._beaten_at = -1_000

    async def run(self) -> None:
        """Work until the workload ends."""
        world = self._world
        while not world.is_over:
            await asyncio.sleep(world.dice.between(1, 2 * self._pace_ms) / 1_000)
            if world.is_resting:
                await self._leave()
            elif world.dice.chance(0.015) and not world.is_draining:
                await self._end_life()
            else:
                await self._work()

    async def _work(self) -> None:
        """Send a heartbeat when it is due, and one request to each broker."""
        try:
            if self._world.now - self._beaten_at >= self._world.heartbeat_ms:
                await self._beat(self._member_epoch)
            for session, topics in list(self._planned()):
                await self._serve(session, topics)
        except (OSError, TimeoutError):
            return

    async def _end_life(self) -> None:
        """Die: with connections that break, or with ones that nobody closes."""
        world = self._world
        is_silent = world.dice.chance(0.5)
        world.note(self._member_id, "dies silently" if is_silent else "dies")
        if not is_silent:
            self._disconnect()
        await asyncio.sleep(world.dice.pick((10, 300)) / 1_000)
        self._begin_life()

    async def _leave(self) -> None:
        """Close the sessions and leave the group, or be gone without a word."""
        if self._member_epoch == 0:
            return
        if self._leaves_silently:
            self._begin_life()
            return
        try:
            for session in self._sessions.values():
                if session.epoch > 0:
                    await self._send(session, ACKNOWLEDGE, FINAL_EPOCH, [])
            await self._beat(FINAL_EPOCH)
        except (OSError, TimeoutError):
            return
        self._disconnect()
        self._begin_life()

    def _disconnect(self) -> None:
        for session in self._sessions.values():
            session.client.disconnect()

    # -- membership

    async def _beat(self, member_epoch: int) -> None:
        world = self._world
        self._beaten_at = world.now
        names = sorted({one.name for one in world.inputs})
        fields = {
            "group_id": GROUP,
            "member_id": self._member_id,
            "member_epoch": member_epoch,
            "rack_id": None,
            "subscribed_topic_names": names if member_epoch == 0 else None,
        }
        answer = await self._any.call(*HEARTBEAT, fields)
        code = ErrorCode(answer.error_code)
        if code in FENCED:
            world.note(self._member_id, f"is fenced: {code.name}")
            self._disconnect()
            self._begin_life()
        elif code is not ErrorCode.NONE:
            require(code in AGAIN, "members hear what they understand", f"{self.name}: {code.name}")
            self._any.disconnect()
        else:
            self._member_epoch = max(0, answer.member_epoch)
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self._assigned = {(one.topic_id, n) for one in parts for n in one.partitions}

    # -- fetching

    def _planned(self) -> Iterator[tuple[Session, list["SimTopic"]]]:
        """Yield a session for each leader of an assigned partition."""
        by_leader: dict[str, list[SimTopic]] = {}
        for topic in self._world.inputs:
            if (topic.topic_id, topic.partition) in self._assigned:
                try:
                    leader = self._leaders[topic.title]._find_leader()
                except OSError:
                    continue
                by_leader.setdefault(leader, []).append(topic)
        for name in sorted({*by_leader, *self._sessions}):
            session = self._sessions.setdefault(name, Session(self._world, name))
            topics = by_leader.get(name, [])
            if topics or session.topics:
                yield session, topics

    async def _serve(self, session: Session, topics: list["SimTopic"]) -> None:
        """Send one request: a fetch with acknowledgements, or acknowledgements alone."""
        for hands in session.hands.values():
            hands.decide(self._world.now)
        if session.epoch > 0 and any(one.choices for one in session.hands.values()):
            if self._world.dice.chance(0.4):
                await self._send(session, ACKNOWLEDGE, session.epoch, topics)
                return
            choices = {title: one.choices for title, one in session.hands.items()}
            if _has_renewals(choices):  # a renewal comes without a fetch
                await self._send(session, ACKNOWLEDGE, session.epoch, topics)
                return
        await self._send(session, FETCH, session.epoch, topics)

    async def _send(
        self, session: Session, api: tuple[ApiKey, int], epoch: int, topics: list["SimTopic"]
    ) -> None:
        sent = self._taken(session)
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self._member_id,
            "share_session_epoch": epoch,
            "topics": self._rows(session, sent, topics if api is FETCH else []),
            "is_renew_ack": _has_renewals(sent),
        }
        if api is FETCH:
            gone = [one for one in session.topics if one not in topics]
            fields |= {
                "max_wait": self._world.dice.pick((0, 20, 60)),
                "min_bytes": 1,
                "max_bytes": 4_000,
                "max_records": self._world.dice.pick((1, 3, 10)),
                "batch_size": self._world.dice.pick((1, 10)),
                "share_acquire_mode": self._world.dice.pick((0, 1)),
                "forgotten_topics_data": [
                    {"topic_id": one.topic_id, "partitions": [one.partition]} for one in gone
                ],
            }
        try:
            answer = await session.client.call(*api, fields)
        except (OSError, TimeoutError):
            session.begins_again()
            raise
        self._heard(session, api, answer, sent)
        if session.epoch == epoch and api is FETCH:
            session.topics = list(topics)
        if session.epoch == epoch:
            session.epoch = max(1, epoch + 1)

    @staticmethod
    def _taken(session: Session) -> dict[str, dict[Delivered, Choice]]:
        """Take the acknowledgements that are to be sent, by topic."""
        sent = {title: one.choices for title, one in session.hands.items() if one.choices}
        for title in sent:
            session.hands[title].choices = {}
        return sent

    def _rows(
        self,
        session: Session,
        sent: dict[str, dict[Delivered, Choice]],
        topics: list["SimTopic"],
    ) -> list[dict[str, object]]:
        """Return the partitions of a request: new ones, and those with acknowledgements."""
        rows: list[dict[str, object]] = []
        for topic in self._world.inputs:
            is_new = topic in topics and topic not in session.topics
            choices = sent.get(topic.title, {})
            if is_new or choices:
                part = {
                    "partition_index": topic.partition,
                    "acknowledgement_batches": list(_batches(choices)),
                }
                rows.append({"topic_id": topic.topic_id, "partitions": [part]})
        return rows

    # -- answers

    def _heard(
        self,
        session: Session,
        api: tuple[ApiKey, int],
        answer: Struct,
        sent: dict[str, dict[Delivered, Choice]],
    ) -> None:
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self._world.note(self._member_id, f"hears {code.name} to {api[0].name}")
            known = code in SESSION_LOST or code in AGAIN
            require(known, "members hear what they understand", f"{self.name}: {code.name}")
            session.begins_again()
            return
        for of_topic in answer.responses:
            for part in of_topic.partitions:
                topic = self._topic(of_topic.topic_id, part.partition_index)
                if api is FETCH:
                    self._heard_partition(session, topic, part)
                code = ErrorCode(part.acknowledge_error_code if api is FETCH else part.error_code)
                self._heard_outcome(session, topic, code, sent.get(topic.title, {}))

    def _topic(self, topic_id: bytes, partition: int) -> "SimTopic":
        return next(
            one
            for one in self._world.inputs
            if one.topic_id == topic_id and one.partition == partition
        )

    def _heard_outcome(
        self,
        session: Session,
        topic: "SimTopic",
        code: ErrorCode,
        sent: dict[Delivered, Choice],
    ) -> None:
        if not sent:
            return
        world = self._world
        if code is not ErrorCode.NONE:
            world.note(self._member_id, f"hears {code.name} to acknowledgements", topic)
            known = code in AGAIN or code is ErrorCode.INVALID_REQUEST  # beyond a new window
            require(known, "members hear what they understand", f"{self.name}: {code.name}")
            return
        kinds = ", ".join(f"{choice} {one.offset}" for one, choice in sent.items())
        world.note(self._member_id, kinds, topic)
        for one, choice in sent.items():
            if choice.kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                world.is_answered(share_key(topic), one)
                if world.has_repeats and world.dice.chance(TWICE):
                    session.hands[topic.title].choices[one] = choice
            elif choice.kind is AcknowledgeType.RENEW:
                due = world.now + world.dice.pick(RENEWED_MS)
                session.hands[topic.title].later.append((due, one, _ACCEPT))

    def _heard_partition(self, session: Session, topic: "SimTopic", part: Struct) -> None:
        code = ErrorCode(part.error_code)
        if code is not ErrorCode.NONE:
            self._world.note(self._member_id, f"hears {code.name} to SHARE_FETCH", topic)
            require(code in AGAIN, "members hear what they understand", f"{self.name}: {code.name}")
            self._leaders[topic.title].disconnect()
            return
        offsets = [
            offset
            for one in part.acquired_records
            for offset in range(one.first_offset, one.last_offset + 1)
        ]
        if not offsets:
            return
        there = {
            offset
            for batch in stored_batches(part.records or b"", with_values=False)
            for offset in range(batch.first, batch.last + 1)
        }
        missing = [one for one in offsets if one not in there]
        require(not missing, "acquired records are in the answer", f"{topic.title}: {missing}")
        self._decide(session, topic, offsets)

    def _decide(self, session: Session, topic: "SimTopic", offsets: list[int]) -> None:
        """Decide what becomes of each record: most are accepted."""
        world = self._world
        hands = session.hands.setdefault(topic.title, Hands())
        state_epoch = world.history.epochs.get(share_key(topic), -1)
        world.note(self._member_id, f"gets {offsets[0]} to {offsets[-1]}", topic)
        for offset in offsets:
            choice, one = world.draw_choice(), Delivered(offset, state_epoch)
            if choice is not None and choice.kind is AcknowledgeType.RENEW:
                hands.later.append((world.now + world.dice.pick(RENEWED_MS), one, choice))
            elif choice is not None:
                hands.choices[one] = choice


_ACCEPT: Final = Choice(AcknowledgeType.ACCEPT)


def share_key(topic: "SimTopic") -> SharePartitionKey:
    """Return the group's view of a partition."""
    return SharePartitionKey(GROUP, topic.topic_id, topic.partition)


def _has_renewals(sent: dict[str, dict[Delivered, Choice]]) -> bool:
    kinds = (choice.kind for one in sent.values() for choice in one.values())
    return AcknowledgeType.RENEW in kinds


def _batches(choices: dict[Delivered, Choice]) -> Iterator[dict[str, object]]:
    """Yield acknowledgement batches of consecutive offsets. Own fields are those of a batch."""
    by_offset = {one.offset: choice for one, choice in choices.items()}
    run: list[int] = []
    for offset in sorted(by_offset):
        if run and (offset != run[-1] + 1 or by_offset[offset][1:] != by_offset[run[0]][1:]):
            yield _batch(run, by_offset)
            run = []
        run.append(offset)
    if run:
        yield _batch(run, by_offset)


def _batch(run: list[int], choices: dict[int, Choice]) -> dict[str, object]:
    types = [int(choices[offset].kind) for offset in run]
    first = choices[run[0]]
    if first.is_unseen:
        assert set(types) == {AcknowledgeType.RELEASE}, "what was never received is released"
    return {
        "first_offset": run[0],
        "last_offset": run[-1],
        "acknowledge_types": types if len(set(types)) > 1 else types[:1],
        "release_delay": first.delay_ms,
        "is_unseen": first.is_unseen,
    }
