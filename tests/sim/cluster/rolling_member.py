"""Members of a group that changes its protocol: they leave, and come back with the other one."""

from typing import TYPE_CHECKING, Any, Final

from tidemark.codec.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    ConsumerSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode

from sim.checkers import require
from sim.cluster.consumer_member import ConsumerMember
from sim.cluster.txn_client import AGAIN, NOT_A_MEMBER
from sim.cluster.txn_processes import SESSION_MS
from sim.cluster.txn_workload import GROUP, Member, Position

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.txn_world import TxnWorld

VERSION: Final = 3
"""Of the consumers' own protocol: it names the generation of the partitions that a member owns."""
CHANGES: Final = 0.05
"""Probability that a member changes its protocol, at each of its turns."""


class EmbeddedMember(Member):
    """Member of the classic protocol with the consumers' own protocol in it, which a group of
    KIP-848 takes, too. Eager: it gives up before it joins. Cooperative: it keeps what it has until
    it sees its next assignment.
    """

    def __init__(self, world: "TxnWorld", name: str, source: "SimTopic") -> None:
        super().__init__(world, name)
        self._partition = source.partition
        self._topic_name = source.name
        self._is_cooperative = world.is_cooperative
        self._must_join = True

    @property
    def _assignor(self) -> str:
        return "cooperative" if self._is_cooperative else "range"

    def leave_it(self) -> None:
        """See Member: a commit was refused."""
        self._lose()

    def _lose(self) -> None:
        """Forget the generation, and everything that came with it."""
        self._world.owners.begins_anew(self.name)
        self.generation_id, self.has_all, self._must_join = NO_GENERATION, False, True

    def _give_up(self) -> None:
        if self.has_all:
            self._world.note(self.name, f"gives up in generation {self.generation_id}")
        self._world.owners.gives_up(self.name)
        self.has_all = False

    async def stay(self) -> bool:
        """See Member."""
        if not self._must_join:
            sent_at = self._world.now
            code = await self._heartbeat()
            if code is ErrorCode.NONE:
                if self.has_all:
                    self._world.owners.keeps(self.name, sent_at, self.generation_id)
                return True
            self._heard(code)
            if not self._must_join:
                return True
        await self._join()
        return False

    async def leave(self) -> None:
        """Leave the group. Raises OSError, TimeoutError."""
        member_id = self.member_id
        self._lose()
        self.member_id = ""
        fields = {"group_id": GROUP, "members": [{"member_id": member_id}]}
        if member_id:
            await self._client.call(ApiKey.LEAVE_GROUP, 5, fields)

    async def _heartbeat(self) -> ErrorCode:
        fields = {
            "group_id": GROUP,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
        }
        answer = await self._client.call(ApiKey.HEARTBEAT, 4, fields)
        return ErrorCode(answer.error_code)

    def _heard(self, code: ErrorCode) -> None:
        """Handle a refusal."""
        self._world.note(self.name, f"hears {code.name}")
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif code in NOT_A_MEMBER:
            self._lose()
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        else:
            known = code in AGAIN
            require(known, "members hear what they understand", f"{self.name}: {code.name}")
            self._client.disconnect()

    def _metadata(self) -> bytes:
        owned = ((self._topic_name, (self._partition,)),) if self.has_all else ()
        topics = (self._topic_name,)
        return write_subscription(ConsumerSubscription(VERSION, topics, owned, self.generation_id))

    async def _join(self) -> None:
        """Raises OSError, TimeoutError."""
        if not self._is_cooperative:
            self._give_up()
        self._must_join = True
        fields = {
            "group_id": GROUP,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": SESSION_MS,
            "member_id": self.member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": self._assignor, "metadata": self._metadata()}],
        }
        joined = await self._client.call(ApiKey.JOIN_GROUP, 9, fields)
        code = ErrorCode(joined.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        elif code is ErrorCode.NONE:
            self.member_id, self.generation_id = joined.member_id, joined.generation_id
            await self._synchronise(self._shares(joined))
        else:
            self._heard(code)

    def _shares(self, joined: Any) -> list[dict[str, object]]:
        """Return the leader's assignment: all to one, unless another one has it still."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return []
        chosen = self._world.dice.pick(sorted(one.member_id for one in joined.members))
        said = {one.member_id: read_subscription(one.metadata) for one in joined.members}
        newest = max((one.generation for one in said.values() if one.owned), default=0)
        owners = [key for key, one in said.items() if one.owned and one.generation == newest]
        free = not owners or owners == [chosen]
        everything = {self._topic_name: [self._partition]}
        return [
            {
                "member_id": member_id,
                "assignment": write_assignment(
                    everything if free and member_id == chosen else {}, VERSION
                ),
            }
            for member_id in said
        ]

    async def _synchronise(self, shares: list[dict[str, object]]) -> None:
        sent_at = self._world.now
        fields = {
            "group_id": GROUP,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": self._assignor,
            "assignments": shares,
        }
        synced = await self._client.call(ApiKey.SYNC_GROUP, 5, fields)
        code = ErrorCode(synced.error_code)
        if code is not ErrorCode.NONE:
            self._heard(code)
            return
        self._must_join = False
        is_given = bool(read_assignment(synced.assignment))
        if is_given:
            self._take(sent_at)
        elif self.has_all:
            self._give_up()
            self._must_join = True  # as the cooperative protocol demands

    def _take(self, sent_at: int) -> None:
        world = self._world
        if not self.has_all:
            world.note(self.name, f"takes in generation {self.generation_id}")
        world.owners.takes(self.name, sent_at, self.generation_id, now=world.now)
        self.has_all = True


class RollingMember(Member):
    """Member that restarts from time to time, with the other protocol."""

    def __init__(self, world: "TxnWorld", name: str, source: "SimTopic") -> None:
        super().__init__(world, name)
        self._source = source
        self._is_classic = world.dice.chance(0.6)
        self._inner = self._make()

    def _make(self) -> EmbeddedMember | ConsumerMember:
        kind = EmbeddedMember if self._is_classic else ConsumerMember
        return kind(self._world, self.name, self._source)

    @property
    def identity(self) -> tuple[str, int]:
        """Member id, and generation or epoch."""
        return self._inner.identity

    def leave_it(self) -> None:
        """See Member."""
        self._inner.leave_it()
        self.has_all = False

    async def stay(self) -> bool:
        """See Member."""
        if self._world.dice.chance(CHANGES):
            await self._change()
        is_uninterrupted = await self._inner.stay()
        self.has_all = self._inner.has_all
        return is_uninterrupted

    async def _change(self) -> None:
        """Leave, and become a member of the other protocol. Raises OSError, TimeoutError."""
        left, self._is_classic = self._inner, not self._is_classic
        self.has_all = False
        self._world.owners.begins_anew(self.name)
        self._inner = self._make()
        self._world.note(self.name, f"changes to {'classic' if self._is_classic else 'KIP-848'}")
        await left.leave()

    async def committed(self, topic: "SimTopic") -> Position | None:
        """See Member."""
        return await self._inner.committed(topic)
