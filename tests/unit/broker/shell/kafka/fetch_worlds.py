"""A broker that leads some partitions of three replicas, and fetchers that use its Fetch handler:
no loop, no sockets, a clock that is moved by hand.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from broker.shell.partitions.hosted import HostedPartition
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, iterate_headers
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, InstantMs, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import PartitionImage, TopicImage
from tidemark.model.topics import TopicPartition
from unit.broker.shell.broker_worlds import ME, World
from unit.broker.shell.replicated_worlds import THREE, broker, replica_reader

VERSION = 18
LAG_MS = 1_000
TOPIC_ID = TopicId(bytes([1]) * 16)
CONSUMER, COMMITTED_CONSUMER = -1, -2
"""Fetchers by replica id; the second reads committed records only."""


class FetchWorld(World):
    """A broker that leads ``orders``, and its fetchers. With ``scans`` nothing ever rests in a
    session: every request looks at all of it, as plain as can be.
    """

    def __init__(self, partitions: int = 3, *, scans: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        parts = self.parts
        parts.partitions.parked.requests._on_earlier = None
        numbers = count(1)
        parts.partitions.fetch_sessions._draw_id = lambda: next(numbers)
        if scans:
            cast("Any", parts.partitions.fetch_sessions).rest = lambda *_: False
        parts.replication = replace(
            parts.replication, replica_reader=replica_reader(parts, self.consider)
        )
        self.handle = parts.hot(ApiKey.FETCH)
        self.calls: list[Callable[[], None]] = []
        self.topic = TopicImage("orders", TOPIC_ID, {}, ())
        self.show(self.topic)
        self.change(brokers_changed=tuple(map(broker, (1, 2, 3))))
        self.change(broker_configs_changed={"": {"leader.replication.throttled.rate": "100"}})
        for _ in range(partitions):
            self.add_partition()

    # -- what happens to partitions

    def at(self, number: int) -> HostedPartition:
        return self.parts.partitions.table.by_name["orders", number]

    @property
    def partitions(self) -> range:
        return range(len(self.topic.partitions))

    def add_partition(self) -> None:
        number = len(self.topic.partitions)
        state = PartitionImage(number, THREE, THREE, ME, LeaderEpoch(0), PartitionEpoch(0))
        self._retopic(partitions=(*self.topic.partitions, state))

    def lead_anew(self, number: int) -> None:
        """The same leader, one epoch higher."""
        self._restate(number, leader_epoch=LeaderEpoch(self.at(number).partition.leader_epoch + 1))

    def shrink(self, number: int, *left: int) -> None:
        """The controller says who is in sync."""
        self._restate(number, isr=tuple(map(BrokerId, (1, *left))))

    def set_replicas(self, number: int, *replicas: int) -> None:
        self._restate(number, replicas=tuple(map(BrokerId, (1, *replicas))))

    def configure(self, **configs: str) -> None:
        self._retopic(configs={name.replace("_", "."): value for name, value in configs.items()})

    def _restate(self, number: int, **fields: Any) -> None:
        hosted = self.at(number).partition
        state = replace(
            self.topic.partitions[number],
            isr=hosted.isr,
            leader_epoch=hosted.leader_epoch,
            partition_epoch=PartitionEpoch(hosted.replica_set.isr.partition_epoch + 1),
        )
        states = list(self.topic.partitions)
        states[number] = replace(state, **fields)
        self._retopic(partitions=tuple(states))

    def _retopic(self, **fields: Any) -> None:
        self.topic = replace(self.topic, **fields)
        self.change(topics_changed=(self.topic,))
        self.run()

    def put(self, number: int, size: int = 10, *, acks: int = 1, **fields: Any) -> None:
        batch = build_batch([(self.clock.wall_ms(), None, b"x" * size, ())], **fields)
        now = self.clock.wall_ms()
        self.parts.partitions.appender.append(
            self.at(number), memoryview(bytearray(batch)), acks=acks, now_ms=now
        )
        self.run()

    def put_transactional(self, number: int, producer_id: int) -> None:
        """As a group's coordinator does."""
        records = [(self.clock.wall_ms(), None, b"txn", ())]
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=0, attributes_extra=TRANSACTIONAL_BIT
        )
        self.parts.partitions.appender.append_internal(self.at(number), batch)
        self.run()

    def mark(self, number: int, producer_id: int, *, commits: bool) -> None:
        marker = EndTxnMarker(commits=commits, coordinator_epoch=0)
        now = self.clock.wall_ms()
        batch = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=now)
        self.parts.partitions.appender.append_internal(self.at(number), batch, control=marker)
        self.run()

    def delete_records(self, number: int) -> None:
        """All that is committed."""
        hosted = self.at(number)
        hosted.log.advance_log_start(hosted.partition.high_watermark)
        self.parts.partitions.log_moves.log_start_moved(hosted)
        self.run()

    # -- time, and what the shell does beside

    def consider(self, hosted: HostedPartition) -> None:
        """As the ISR sender does, with a controller that agrees at once."""
        partition, parts = hosted.partition, self.parts
        proposal = partition.propose(
            InstantMs(parts.facts.clock.now_ms()), parts.cluster.live.epochs, LAG_MS
        )
        if proposal is None:
            return
        before = partition.high_watermark
        state = PartitionImage(
            hosted.topic_partition.partition,
            partition.replicas,
            proposal.members,
            ME,
            partition.leader_epoch,
            PartitionEpoch(proposal.partition_epoch + 1),
        )
        gained_bytes = partition.proposal_answered(proposal, ErrorCode.NONE, state)
        if partition.high_watermark != before:
            parts.partitions.parked.moved(hosted, gained_bytes)
        else:
            parts.partitions.parked.has_news(hosted)

    def look(self) -> None:
        """For followers that lag."""
        for number in self.partitions:
            self.consider(self.at(number))
        self.run()

    def pass_time(self, milliseconds: int) -> None:
        """With a look at least twice in each lag time, as the ISR sender does."""
        while milliseconds > 0:
            self.clock.advance(min(milliseconds, LAG_MS // 2))
            milliseconds -= LAG_MS // 2
            self.parts.partitions.parked.requests.expire(self.parts.facts.clock.now_ms())
            self.run()
            self.look()

    def run(self) -> None:
        """What was put off until the loop's next turn."""
        while self.calls:
            self.calls.pop(0)()

    def check(self) -> None:
        self.parts.partitions.fetch_sessions.check()
        self.parts.partitions.parked.requests.check()
        for number in self.partitions:
            self.at(number).partition.check()

    def progress(self) -> list[tuple[Any, ...]]:
        """All that the broker holds of followers, and what follows from it."""
        return [
            (
                str(self.at(number).partition),
                [
                    (one, known.log_end, known.synced_end, known.caught_up_at)
                    for one, known in self.at(number).partition.replica_set.progress.items()
                ],
            )
            for number in self.partitions
        ]


class Fetcher:
    """A follower or a consumer with a fetch session, one request at a time; also the connection
    that it talks through.
    """

    closed = False

    def __init__(self, world: FetchWorld, replica: int) -> None:
        self.world = world
        self.replica = replica
        self.requester = Requester("User:a", "")
        self.rack = ""
        self.listener = SimpleNamespace(
            name="CLIENT",
            loop=SimpleNamespace(call_soon=lambda done, *a: world.calls.append(lambda: done(*a))),
        )
        self.session = (0, 0)
        self.positions: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.changed: dict[int, None] = {}
        """To be named in the next request."""
        self.is_waiting = False
        self.heard: list[tuple[int, bytes]] = []
        """Answers, whole, with the time of each."""
        self.broker_epoch = 10 * replica if replica > 0 else -1

    # -- the connection

    def later(self, _: object) -> Any:
        return SimpleNamespace(send=self._hear, on_gone=None)

    def answer(self, _: object, body: bytes) -> None:
        self._hear([body])

    def answer_parts(self, _: object, parts: Any) -> None:
        self._hear(parts)

    def mute(self, _: int) -> None:
        """No quotas here."""

    # -- asking

    def follow(self, *numbers: int) -> None:
        """Want these, from where it is with them."""
        for number in numbers:
            self.positions.setdefault(number, 0)
            self.changed[number] = None

    def ask(
        self,
        *,
        wait_ms: int = 0,
        bytes_min: int = 1,
        bytes_max: int = 1 << 20,
        partition_bytes_max: int = 1 << 20,
        forget: tuple[int, ...] = (),
    ) -> None:
        """One request: what changed, what is new, what is dropped."""
        assert not self.is_waiting
        for number in forget:
            self.positions.pop(number, None)
            self.changed.pop(number, None)
        named = [number for number in self.changed if number in self.positions]
        if self.session[0] == 0:
            named = list(self.positions)
        self.changed.clear()
        wanted = [self._position(number, partition_bytes_max) for number in named]
        request = FetchRequest(
            max(self.replica, -1),
            self.broker_epoch,
            wait_ms,
            bytes_min,
            bytes_max,
            int(self.replica == COMMITTED_CONSUMER),
            *self.session,
            [FetchTopic("", TOPIC_ID, wanted)] if wanted else [],
            [("", TOPIC_ID, list(forget))] if forget and self.session[0] else [],
            self.rack,
            None,
        )
        body = memoryview(write_fetch_request(VERSION, request))
        self.is_waiting = True
        header = SimpleNamespace(api_key=1, api_version=VERSION, correlation_id=0)
        self.world.handle(cast("Any", self), cast("Any", header), body)
        self.world.run()

    def _position(self, number: int, bytes_max: int) -> FetchPartition:
        offset = self.positions[number]
        synced = offset if self.replica > 0 else -1
        epoch = self.epochs.get(number, 0)
        return FetchPartition(number, epoch, offset, -1, 0, bytes_max, synced_end=synced)

    def reopen(self) -> None:
        """Begin another session."""
        self.session = (0, 0)

    # -- hearing

    def _hear(self, parts: Any) -> None:
        assert self.is_waiting
        self.is_waiting = False
        body = b"".join(
            one if isinstance(one, bytes) else one[0].read_at(one[1], one[2]) for one in parts
        )
        self.heard.append((self.world.clock.now_ms(), body))
        response = read_fetch_response(memoryview(body), VERSION)
        if response.error_code or not response.session_id:
            self.reopen()
        else:
            self.session = (response.session_id, self.session[1] + 1)
        for _, _, partitions in response.topics:
            for result, records in partitions:
                self._take(result, records)

    def _take(self, result: Any, records: Any) -> None:
        number = result.partition
        if number not in self.positions:
            return
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions[number] = result.log_start_offset
        elif result.error_code and TopicPartition("orders", number) in self.world.table.by_name:
            self.epochs[number] = self.world.at(number).partition.leader_epoch
        for _, header in iterate_headers(records or b""):
            self.positions[number] = header.last_offset + 1
        self.changed[number] = None

    def preferred(self) -> dict[int, int]:
        """Of the last answer: the replica to read from, by partition."""
        response = read_fetch_response(memoryview(self.heard[-1][1]), VERSION)
        return {
            result.partition: result.preferred_read_replica
            for _, _, partitions in response.topics
            for result, _ in partitions
        }

    def aborted(self) -> list[tuple[int, int]]:
        """Of the last answer: aborted transactions, of all partitions."""
        response = read_fetch_response(memoryview(self.heard[-1][1]), VERSION)
        found = [one for _, _, partitions in response.topics for one, _ in partitions]
        return [txn for one in found for txn in one.aborted or ()]

    def told(self) -> dict[int, tuple[int, int, int]]:
        """Of the last answer: (error code, high watermark, bytes of records) by partition."""
        response = read_fetch_response(memoryview(self.heard[-1][1]), VERSION)
        return {
            result.partition: (result.error_code, result.high_watermark, len(records or b""))
            for _, _, partitions in response.topics
            for result, records in partitions
        }
