"""The simulator of a cluster with share groups: brokers, controllers, two share-coordinators;
producers, and members of one share group that is reset now and then.

The state of share groups has two partitions, and every topic one.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.core.share.acknowledgement import AcknowledgeType
from broker.shell.partitions.hosted import HostedPartition
from share_coordinator.core.shard import ShareShard
from share_coordinator.shell.shard_life import ShardLife
from tidemark.codec.control_record import OwnerRecord, read_control
from tidemark.codec.records import read_records
from tidemark.codec.share_records import ShareSnapshotRecord, ShareUpdateRecord, decode
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.share_state import SharePartitionKey
from tidemark.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE

from sim.checkers import require
from sim.cluster.client import Producer
from sim.cluster.coordinated_world import CoordinatedWorld, is_busy
from sim.cluster.parts import CoordinatorReplica, Options, SimTopic
from sim.cluster.share_faults import SHARE_FAULTS
from sim.cluster.share_history import ShareHistory
from sim.cluster.share_member import AGAIN, GROUP, Delivered, ShareMember, share_key
from sim.cluster.share_processes import (
    LIMIT,
    SHARE_HEARTBEAT_MS,
    ShareCoordinatorProcess,
    sharing_config,
)
from sim.cluster.share_state_log import ShareStateLog
from sim.cluster.state_ledger import PrunedLedger, StateLedger
from sim.cluster.txn_client import AnyBroker
from sim.cluster.watching import batches_of
from sim.cluster.world import make_topic
from sim.dice import Dice

DRAIN_MS: Final = 15_000
"""Longest time after healing until every record is finished."""
STATE_PARTITIONS: Final = 2
MEMBERS: Final = 3
RESET_DICE: Final = 7_000_003
RESETS: Final = 0.4
"""Share of the seeds in which the group is reset."""
LONG_LOCKS: Final = 0.3
LONG_LOCK_MS: Final = 1_300
"""Locks that outlast the session of a member, in this share of the seeds."""
_OUTCOMES: Final = (
    (AcknowledgeType.ACCEPT, 78),
    (AcknowledgeType.RELEASE, 8),
    (AcknowledgeType.REJECT, 4),
    (AcknowledgeType.RENEW, 5),
    (None, 5),
)


@dataclass(frozen=True)
class ShareOptions(Options):
    """Options of a run with share groups besides its seed."""

    length_ms: int = 3_000
    has_reset: bool | None = None
    """True if the group is reset, under locks that outlast its members; None: drawn."""


def _topics(seed: int) -> list[SimTopic]:
    """Return two topics for producers, and the coordinators' own."""

    def replicas(number: int) -> tuple[int, ...]:
        start = (seed + number) % 3
        return (1, 2, 3, 1, 2)[start : start + 3]

    data = {"min.insync.replicas": "2", "flush": "os"}
    topics = [
        make_topic(number, name, dict(data), replicas(number))
        for number, name in enumerate(("orders", "prices"))
    ]
    offsets = make_topic(3, CONSUMER_OFFSETS, {**data, "cleanup.policy": "compact"}, replicas(3))
    offsets.ledger = StateLedger(offsets.title)
    topics.append(offsets)
    for partition in range(STATE_PARTITIONS):
        one = make_topic(4, SHARE_GROUP_STATE, dict(data), replicas(4 + partition))
        one.partition = partition
        one.ledger = PrunedLedger(one.title)
        topics.append(one)
    return topics


class ShareWorld(CoordinatedWorld):
    """One run. See the module."""

    broker_config = staticmethod(sharing_config)
    heartbeat_ms = SHARE_HEARTBEAT_MS

    def __init__(self, seed: int, options: ShareOptions) -> None:
        super().__init__(seed, options, _topics(seed), prefix="s")
        self.inputs = self.topics[:2]
        self.history = ShareHistory(LIMIT)
        self.state_logs = {
            one.partition: ShareStateLog(one.title, self.history)
            for one in self.topics
            if one.name == SHARE_GROUP_STATE
        }
        self.is_resting = False
        """True while the members stay away from the group."""
        apart = Dice(RESET_DICE + seed)
        self._has_reset = apart.chance(RESETS) or bool(options.has_reset)
        if apart.chance(LONG_LOCKS) or options.has_reset:
            self.drawn_config |= {"group_share_record_lock_duration_ms": LONG_LOCK_MS}

    def _faults_of_its_own(self) -> Mapping[str, tuple[Callable[[Any], None], int]]:
        return SHARE_FAULTS

    @property
    def state_topics(self) -> list[SimTopic]:
        """See CoordinatedWorld."""
        return [one for one in self.topics if one.name in (SHARE_GROUP_STATE, CONSUMER_OFFSETS)]

    def shards(self) -> set[int]:
        """See CoordinatedWorld."""
        return set(self.state_logs)

    def make_coordinator(self, replica: CoordinatorReplica) -> ShareCoordinatorProcess:
        """See CoordinatedWorld."""
        return ShareCoordinatorProcess(
            replica.host, self, self.zookeeper, self.dice, replica.number, self.options.timing
        )

    # -- clients

    def _start_clients(self) -> "list[asyncio.Task[None]]":
        tasks = []
        for number, topic in enumerate(self.inputs, 1):
            producer = Producer(self, topic, number)
            tasks.append(self._client_task(producer.run(lambda: self.is_draining), producer.name))
        for number in range(1, MEMBERS + 1):
            member = ShareMember(self, f"m{number}")
            tasks.append(self._client_task(member.run(), member.name))
        if self._has_reset:
            tasks.append(self._client_task(self._reset(), "reset"))
        return tasks

    def draw_outcome(self) -> AcknowledgeType | None:
        """Return what a member does with a record; None: it forgets it."""
        return self.dice.weighted(_OUTCOMES)

    async def _reset(self) -> None:
        """Send the members away, and begin the partitions again at other offsets."""
        await asyncio.sleep(self.dice.between(500, 2_000) / 1_000)
        self.is_resting = True
        client = AnyBroker(self, self.topics[0])
        deadline = self.now + 2_500
        while self.now < deadline and not await self._altered(client):
            await client.rest()
        self.is_resting = False

    async def _altered(self, client: AnyBroker) -> bool:
        topic = self.dice.pick(self.inputs)
        row = {"partition_index": topic.partition, "start_offset": self.dice.between(0, 6)}
        fields = {
            "group_id": GROUP,
            "topics": [{"topic_name": topic.name, "partitions": [row]}],
        }
        try:
            answer = await client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, fields)
        except (OSError, TimeoutError):
            return False
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            code = ErrorCode(answer.responses[0].partitions[0].error_code)
        self.note("reset", f"{row['start_offset']}: {code.name}", topic)
        known = code in AGAIN or code in (ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP)
        require(known, "administrators hear what they understand", code.name)
        return code is ErrorCode.NONE

    def is_answered(self, key: SharePartitionKey, one: Delivered) -> None:
        """Check that an acknowledgement that was answered is durable."""
        if self.history.epochs.get(key) != one.state_epoch:
            return
        require(
            all(
                log.is_finished(key, one.state_epoch, one.offset)
                for log in self.state_logs.values()
            ),
            "an acknowledgement that is answered is kept",
            f"{key}@{one.offset}",
        )
        self.history.answers(key, one.state_epoch, one.offset)

    # -- checks

    def on_committed(self, topic: SimTopic, hosted: HostedPartition, start: int) -> None:
        """Take the state's records."""
        if topic.name != SHARE_GROUP_STATE:
            return
        log = self.state_logs[topic.partition]
        for batch, header in batches_of(hosted, start, hosted.partition.high_watermark):
            if header.is_control:
                owner = read_control(batch, header)
                if isinstance(owner, OwnerRecord):
                    log.takes_over(owner)
                    self.note("log", f"owner {owner.owner_epoch} of shard {topic.partition}")
                continue
            for one in read_records(batch, header):
                record = None if one.key is None else decode(one.key, one.value)
                if isinstance(record, ShareSnapshotRecord | ShareUpdateRecord):
                    log.takes(record)

    def _look_at_owners(self) -> None:
        """Check that an owner of a shard without pending writes holds the committed state."""
        for replica in self.coordinators:
            if replica.process is not None and not replica.host.is_paused:
                for shard, life in replica.process.node.shards.serving().items():
                    assert isinstance(life, ShardLife)
                    self._look_at(replica, self.state_logs[shard], life)

    def _look_at(self, replica: CoordinatorReplica, log: ShareStateLog, life: ShardLife) -> None:
        runtime = life._runtime
        if life._owner_epoch == log.owner_epoch and not is_busy(runtime):
            assert isinstance(runtime.shard, ShareShard)
            runtime.shard.check()
            log.remembers(replica.host.name, runtime.shard._states)

    # -- the end

    def _drain(self) -> None:
        """Wait until every record is finished."""
        self.is_resting = False
        self.pass_until(self.now + DRAIN_MS, lambda: self._starts() == self._ends())

    def _ends(self) -> dict[SharePartitionKey, int]:
        return {share_key(one): one.ledger.end for one in self.inputs}

    def _starts(self) -> dict[SharePartitionKey, int]:
        found: dict[SharePartitionKey, int] = {}
        for log in self.state_logs.values():
            found |= {key: one.start for key, one in log.states.items()}
        return {share_key(one): found.get(share_key(one), -1) for one in self.inputs}

    def _compare(self) -> None:
        super()._compare()
        self.history.ends(self._starts(), self._ends())
