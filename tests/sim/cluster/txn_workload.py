"""Clients of a world with transactions.

writer   transactions over two topics, some aborted, some abandoned by a zombie that wakes late
worker   consume, transform, produce: input offsets and output in one transaction, fenced by
         the group's generation (KIP-447)
naive    the same loop without transactions: output first, offsets then (N05)
"""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode

from sim.checkers import require
from sim.cluster.client import ALL, Client
from sim.cluster.fleeting import living
from sim.cluster.txn_client import (
    AGAIN,
    NOT_A_MEMBER,
    AbortableError,
    CommittedReader,
    FencedError,
    NotMemberError,
    TailClient,
    TxnProducer,
)
from sim.cluster.txn_history import Consumed
from sim.cluster.txn_processes import SESSION_MS

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.txn_world import TxnWorld

GROUP: Final = "copiers"
PROTOCOL: Final = "all to one"
ALL_OF_IT: Final = b"all of it"
ZOMBIE_MS: Final = (200, 700, 1_500)
"""Pauses below and beyond a member's session and a transaction's time-out."""


class Writer:
    """Writer of transactions over some topics.

    With ``has_zombies``, sessions that are abandoned midway resume later and continue.
    """

    def __init__(self, world: "TxnWorld", name: str, *, is_v2: bool, timeout_ms: int) -> None:
        self.name = name
        self._world = world
        self._is_v2 = is_v2
        self._timeout_ms = timeout_ms
        self._pace_ms = world.dice.pick((20, 50, 100))
        self._written = 0
        self._sessions = 0
        self._producer = self._session()

    def _session(self) -> TxnProducer:
        self._sessions += 1
        name = f"{self.name}-{self._sessions}"
        return TxnProducer(
            self._world,
            self._world.history,
            name,
            self.name,
            is_v2=self._is_v2,
            timeout_ms=self._timeout_ms,
        )

    async def run(self) -> None:
        """Write until the workload ends and the zombies are done."""
        async with asyncio.TaskGroup() as zombies:
            while not self._world.is_draining:
                await asyncio.sleep(self._world.dice.between(1, 2 * self._pace_ms) / 1_000)
                left_behind = await self._transact()
                if left_behind:
                    zombie, self._producer = self._producer, self._session()
                    zombies.create_task(self._go_on(zombie))

    async def _transact(self) -> bool:
        """Run one transaction; return True if this session pauses in the middle of it."""
        dice, producer = self._world.dice, self._producer
        try:
            if producer.producer_id < 0:
                await producer.init()
            producer.begin()
            topics = [one for one in self._world.inputs if dice.chance(0.75)]
            for topic in topics or self._world.inputs[:1]:
                await producer.send(topic, self._values())
            fleeting = living(self._world)
            if fleeting is not None and dice.chance(0.6):
                await producer.send_to_fleeting(fleeting)
            if dice.chance(0.08):
                return True
            if dice.chance(0.05):  # until the coordinator aborts it
                await asyncio.sleep(dice.pick(ZOMBIE_MS) / 1_000)
            await producer.end(commit=dice.chance(0.8))
        except AbortableError:
            await producer.abort()
        except FencedError:
            producer.give_up()
        return False

    async def _go_on(self, zombie: TxnProducer) -> None:
        """Resume after a long time, as if no time had passed."""
        dice = self._world.dice
        await asyncio.sleep(dice.pick(ZOMBIE_MS) / 1_000)
        self._world.note(zombie.name, "wakes")
        try:
            if dice.chance(0.6):
                await zombie.send(dice.pick(self._world.inputs), self._values())
            await zombie.end(commit=True)
        except AbortableError:
            await zombie.abort()
        except FencedError:
            zombie.give_up()

    def _values(self) -> list[bytes]:
        values = []
        for _ in range(self._world.dice.between(1, 2)):
            self._written += 1
            values.append(f"{self.name}-{self._written}".encode())
        return values


class Position(NamedTuple):
    """Offset that a group has committed."""

    offset: int
    is_stable: bool


class Member:
    """Member of a group of the classic protocol, whose leader assigns everything to one member."""

    def __init__(self, world: "TxnWorld", name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation_id = -1
        self.has_all = False
        self._world = world
        self._client = TailClient(world, world.offsets_topic)
        self._client.answer_s = 2.0
        self._is_in = False

    @property
    def identity(self) -> tuple[str, int]:
        """Member id and generation."""
        return self.member_id, self.generation_id

    def leave_it(self) -> None:
        """Note that the group has gone on."""
        self._is_in = self.has_all = False

    async def stay(self) -> bool:
        """Stay a member; return True if there was no interruption. Raises OSError, TimeoutError."""
        if self._is_in:
            fields = {
                "group_id": GROUP,
                "generation_id": self.generation_id,
                "member_id": self.member_id,
            }
            answer = await self._client.call(ApiKey.HEARTBEAT, 4, fields)
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return True
            self._world.note(self.name, f"hears {code.name} to HEARTBEAT")
            self._heard(code)
            if self._is_in:
                return True
        await self._join()
        return False

    def _heard(self, code: ErrorCode) -> None:
        """Handle a refusal."""
        if code in NOT_A_MEMBER:
            self.leave_it()
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return
        require(code in AGAIN, "members hear what they understand", f"{self.name}: {code.name}")
        self._client.disconnect()

    async def _join(self) -> None:
        fields = {
            "group_id": GROUP,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": SESSION_MS,
            "member_id": self.member_id,
            "protocol_type": "sim",
            "protocols": [{"name": PROTOCOL, "metadata": b""}],
        }
        joined = await self._client.call(ApiKey.JOIN_GROUP, 9, fields)
        code = ErrorCode(joined.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return
        if code is not ErrorCode.NONE:
            self._heard(code)
            return
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            chosen = self._world.dice.pick(sorted(one.member_id for one in joined.members))
            assignments = [
                {
                    "member_id": one.member_id,
                    "assignment": ALL_OF_IT if one.member_id == chosen else b"",
                }
                for one in joined.members
            ]
        await self._sync(assignments)

    async def _sync(self, assignments: list[dict[str, object]]) -> None:
        fields = {
            "group_id": GROUP,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "protocol_type": "sim",
            "protocol_name": PROTOCOL,
            "assignments": assignments,
        }
        synced = await self._client.call(ApiKey.SYNC_GROUP, 5, fields)
        code = ErrorCode(synced.error_code)
        if code is not ErrorCode.NONE:
            self._heard(code)
            return
        self._is_in = True
        self.has_all = synced.assignment == ALL_OF_IT
        what = "everything" if self.has_all else "nothing"
        self._world.note(self.name, f"has {what} in generation {self.generation_id}")

    async def committed(self, topic: "SimTopic") -> Position | None:
        """Return the group's position; None: retry. Raises OSError, TimeoutError."""
        offset = await committed_offset(self._client, topic)
        if offset is None:
            self._client.disconnect()
        return offset

    async def commit(self, topic: "SimTopic", offset: int) -> bool:
        """Commit without a transaction; return True on success. Raises OSError, TimeoutError."""
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        fields = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": self.identity[1],
            "member_id": self.identity[0],
            "topics": [{"name": topic.name, "partitions": [row]}],
        }
        answer = await self._client.call(ApiKey.OFFSET_COMMIT, 9, fields)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            self._world.note(self.name, f"hears {code.name} to OFFSET_COMMIT")
            self._heard(code)
        return code is ErrorCode.NONE


async def committed_offset(client: TailClient, topic: "SimTopic") -> Position | None:
    """Return the stable position of the group from its coordinator; None if it gives none. Raises
    OSError, TimeoutError.
    """
    wanted = [{"name": topic.name, "partition_indexes": [0]}]
    fields = {"groups": [{"group_id": GROUP, "topics": wanted}], "require_stable": True}
    answer = await client.call(ApiKey.OFFSET_FETCH, 9, fields)
    group = answer.groups[0]
    if group.error_code:
        return None
    row = group.topics[0].partitions[0]
    if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return Position(-1, is_stable=False)
    require(row.error_code == 0, "a group's offset can be had", ErrorCode(row.error_code).name)
    return Position(max(0, row.committed_offset), is_stable=True)


class Worker:
    """Worker that copies one topic to another, a few records at a time, alone or with others."""

    def __init__(
        self,
        world: "TxnWorld",
        member: Member,
        transactional_id: str,
        *,
        is_v2: bool,
        timeout_ms: int,
    ) -> None:
        self.name = name = member.name
        self._world = world
        self._member = member
        self._source, self._target = world.inputs[0], world.copies
        self._producer = TxnProducer(
            world, world.history, name, transactional_id, is_v2=is_v2, timeout_ms=timeout_ms
        )
        self._reader: CommittedReader | None = None
        self._readers = 0
        self._committed_to = 0
        """Offset after the last consumed record; markers that were only passed do not count."""

    async def run(self) -> None:
        """Copy until the workload ends."""
        while not self._world.is_over:
            try:
                if not await self._member.stay():
                    self._reader = None
                is_idle = not self._member.has_all or not await self._copy()
            except (OSError, TimeoutError):
                is_idle = True
            if is_idle:
                await asyncio.sleep(self._world.dice.between(20, 80) / 1_000)

    async def _copy(self) -> bool:
        """Return True if there was anything to copy. Raises OSError, TimeoutError."""
        reader = self._reader
        if reader is None:
            position = await self._member.committed(self._source)
            if position is None or not position.is_stable:
                return False
            self._readers += 1
            reader = CommittedReader(self._world, self._source, f"{self.name}.{self._readers}")
            reader.position = self._committed_to = position.offset
            self._reader = reader
            await self._stand_still(0.03)
        first = reader.position
        rows = await reader.poll()
        if reader.position == first:
            return False
        copied = await self._hand_on(reader.position, [value for _, value in rows])
        if not copied:
            self._reader = None  # from the group's position, once that is known
        return True

    async def _hand_on(self, end: int, values: list[bytes]) -> bool:
        """Write and commit in one transaction; return True if it is committed."""
        producer, dice = self._producer, self._world.dice
        if not values:
            return True  # only markers: the next transaction passes them, too
        try:
            if producer.producer_id < 0:
                await producer.init()
            txn = producer.begin()
            await producer.send(
                self._target, [b"%s@%s" % (one, txn.name.encode()) for one in values]
            )
            await self._stand_still(0.06)
            consumed = Consumed(GROUP, self._source.name, self._committed_to, end)
            await producer.commit_offsets(consumed, self._member.identity)
            await self._stand_still(0.06)
            is_committed = await producer.end(commit=dice.chance(0.9))
        except NotMemberError:
            self._member.leave_it()
            await producer.abort()
        except AbortableError:
            await producer.abort()
        except FencedError:
            producer.give_up()
        else:
            if is_committed:
                self._committed_to = end
            return is_committed
        return False

    async def _stand_still(self, probability: float) -> None:
        """Pause, as a process that gets no CPU for a while."""
        dice = self._world.dice
        if dice.chance(probability):
            pause_ms = dice.pick(ZOMBIE_MS)
            self._world.note(self.name, f"stands still for {pause_ms} ms")
            await asyncio.sleep(pause_ms / 1_000)


class NaiveWorker(Worker):
    """The loop without transactions, as commonly written first: at least once."""

    async def _hand_on(self, end: int, values: list[bytes]) -> bool:
        if values:
            await self._produce(values)
        await self._stand_still(0.06)
        return await self._member.commit(self._source, end)

    async def _produce(self, values: list[bytes]) -> None:
        client = Client(self._world, self._target)
        self._readers += 1
        tagged = [b"%s@%s.%d" % (one, self.name.encode(), self._readers) for one in values]
        for value in tagged:
            self._target.ledger.sends(value, once=False)
        while True:
            batch = build_batch([(self._world.wall_ms(), None, one, ()) for one in tagged])
            try:
                result = await client.produce(batch, ALL)
            except (OSError, TimeoutError):
                await client.rest()
                continue
            if not result.error_code:
                return
            client.disconnect()
            await client.rest()
