"""Member of a group of KIP-848's protocol: the library's own state machine of heartbeats; and the
rules for ownership of the partition.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidemark.client.consumer.membership import (
    HeartbeatAnswer,
    MemberSettings,
    Membership,
    Subscription,
    read_assignment,
)
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode

from sim.checkers import require
from sim.cluster.txn_client import AGAIN, NOT_A_MEMBER
from sim.cluster.txn_processes import SESSION_MS
from sim.cluster.txn_workload import GROUP, Member

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.txn_world import TxnWorld

HEARTBEAT_VERSION: Final = 1
FENCED: Final = NOT_A_MEMBER | {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH}


@dataclass
class Owners:
    """Owners of one partition, as its members know it.

    test_owners.py gives each rule a history that it must reject.
    """

    session_ms: int
    renewed: dict[str, int] = field(default_factory=dict)
    """Owners, each with the time at which it sent the last heartbeat that confirmed it."""
    epochs: dict[str, int] = field(default_factory=dict)
    """Last member epoch that each member received."""

    def keeps(self, member: str, sent_at: int, epoch: int) -> None:
        """Confirm an owner by the response to its heartbeat."""
        self._rises(member, epoch)
        self.renewed[member] = sent_at

    def takes(self, member: str, sent_at: int, epoch: int, *, now: int) -> None:
        """Assign to a member. Any other owner must have had no response for a session at least."""
        for other, at in self.renewed.items():
            require(
                other == member or now >= at + self.session_ms,
                "nobody is given what another still has",
                f"{member} at {now}; {other} was a member at {at}",
            )
        self.keeps(member, sent_at, epoch)

    def gives_up(self, member: str) -> None:
        """Remove a member that has to revoke, or that is out of the group."""
        self.renewed.pop(member, None)

    def begins_anew(self, member: str) -> None:
        """Let a member join with an identity that the coordinator may not have."""
        self.gives_up(member)
        self.epochs.pop(member, None)

    def _rises(self, member: str, epoch: int) -> None:
        known = self.epochs.get(member, 0)
        require(epoch >= known, "a member's epoch never falls", f"{member}: {epoch} after {known}")
        self.epochs[member] = epoch


class ConsumerMember(Member):
    """Member with an assignment from its coordinator."""

    def __init__(self, world: "TxnWorld", name: str, source: "SimTopic") -> None:
        super().__init__(world, name)
        self._partition = (source.topic_id, source.partition)
        self._topic_name = source.name
        self._membership = self._begin()
        self._sent_at = 0

    @property
    def identity(self) -> tuple[str, int]:
        """Member id and epoch."""
        return self._membership.settings.member_id, self._membership.member_epoch

    def leave_it(self) -> None:
        """Note that the group may have gone on; the next heartbeat shows it."""
        self.has_all = False

    async def stay(self) -> bool:
        """See Member."""
        if self._world.dice.chance(0.03):
            await self._come_back()
        membership = self._membership
        if membership.lost:
            self._world.note(self.name, "loses everything")
        before = (membership.owned, membership.joins)
        membership.user_polls(self._world.now)
        await self._beat(membership)
        self._follow(membership)
        after = (membership.owned, membership.joins)
        self.has_all = self._partition in membership.owned
        return self.has_all and before == after

    def _begin(self) -> Membership:
        """Begin with an id of its own: assignors go by the order of ids. Every other id subscribes
        by a pattern, whose matches the coordinator logs.
        """
        world = self._world
        (number,) = world.dice.throws(1)
        settings = MemberSettings(
            GROUP,
            f"{number:08x}-{self.name}",
            rebalance_timeout_ms=SESSION_MS,
            assignor=world.assignor,
        )
        made = Membership(settings)
        by_pattern = Subscription((), pattern=self._topic_name)
        by_name = Subscription((self._topic_name,))
        made.subscribe(by_pattern if number % 2 else by_name, world.now)
        return made

    async def _come_back(self) -> None:
        """Leave, and join as another member. Raises OSError, TimeoutError."""
        left, self._membership = self._membership, self._begin()
        await self._leave(left)

    async def leave(self) -> None:
        """Leave the group. Raises OSError, TimeoutError."""
        await self._leave(self._membership)

    async def _leave(self, membership: Membership) -> None:
        fields = membership.leaving()
        self._world.owners.begins_anew(self.name)
        self.has_all = False
        self._world.note(self.name, "leaves the group")
        if fields is not None:
            await self._client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, fields)

    async def _beat(self, membership: Membership) -> None:
        """Send one heartbeat. Raises OSError, TimeoutError."""
        world, key = self._world, ApiKey.CONSUMER_GROUP_HEARTBEAT
        sent_at = world.now
        try:
            answer = await self._client.call(key, HEARTBEAT_VERSION, membership.heartbeat())
        except (OSError, TimeoutError):
            membership.on_unanswered(world.now)
            raise
        code = ErrorCode(answer.error_code)
        if membership.passes(code):
            world.note(self.name, f"hears {code.name} to HEARTBEAT")
            membership.on_unanswered(world.now)
            self._client.disconnect()
            return
        given = answer.assignment
        membership.on_answer(
            HeartbeatAnswer(
                code,
                answer.member_epoch,
                answer.heartbeat_interval,
                None if given is None else read_assignment(given.topic_partitions),
                answer.error_message,
            ),
            world.now,
        )
        failure = membership.failure
        require(failure is None, "members hear what they understand", f"{self.name}: {failure}")
        if membership.is_joined and self._partition in membership.owned:
            world.owners.keeps(self.name, sent_at, membership.member_epoch)
        self._sent_at = sent_at

    def _follow(self, membership: Membership) -> None:
        """Revoke, then take, while no record of the application is under way."""
        world = self._world
        if not membership.is_joined:
            world.note(self.name, "is fenced")
            world.owners.begins_anew(self.name)
        leaving, coming = membership.to_revoke, membership.to_assign
        if leaving:
            world.note(self.name, f"gives up in epoch {membership.member_epoch}")
            world.owners.gives_up(self.name)
            membership.revoked(leaving, world.now)
        elif coming:
            world.note(self.name, f"takes in epoch {membership.member_epoch}")
            epoch = membership.member_epoch
            world.owners.takes(self.name, self._sent_at, epoch, now=world.now)
            membership.assigned(coming, world.now)
        membership.check()

    def _heard(self, code: ErrorCode) -> None:
        """Handle a refused commit."""
        if code in FENCED:
            self.leave_it()
            return
        require(code in AGAIN, "members hear what they understand", f"{self.name}: {code.name}")
        self._client.disconnect()
