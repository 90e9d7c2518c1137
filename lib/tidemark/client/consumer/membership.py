"""A member of a consumer group, as KIP-848 has it: one heartbeat carries everything, and the
coordinator decides who reads what.

A pure machine; partitions are (topic id, number). What is owned follows what is assigned in two
steps:

    assigned    {A, B}     {B}                      {B, C}
    owned       {A, B} --> {B}  once A's user said  {B, C}
                           goodbye to it; told to the coordinator, which only then gives A away

When the coordinator does not know us any more, or knows a newer epoch, all that was owned is lost
at once: others may read it already. We join again only once the user knows: until then commits
go out under the old epoch, so that what the user read before cannot be committed by mistake as if
it were still ours.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from tidemark.client.errors import ClientError, error_for
from tidemark.model.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Leaves, but the group_instance_id's partitions stay its own until its session ends."""

TopicIdPartition = tuple[bytes, int]
Fields = Mapping[str, Any]

_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class MemberState(Enum):
    """Where a member is in its life."""

    UNSUBSCRIBED = auto()
    JOINING = auto()  # asked to be a member, not one yet (again)
    MEMBER = auto()
    FENCED = auto()  # lost its partitions, and the user does not know yet
    AWAY = auto()  # left because its user does not poll; the next poll joins again
    FAILED = auto()  # refused for good


class MemberSettings(NamedTuple):
    """What stays the same over a member's life."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = 300_000
    assignor: str | None = None


class Subscription(NamedTuple):
    """Topics by name, or those whose name matches a regular expression (RE2J, at the
    coordinator).
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class HeartbeatAnswer(NamedTuple):
    """What a coordinator says; ``assigned`` is None when it is as before."""

    error_code: int
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: frozenset[TopicIdPartition] | None = None
    message: str | None = None


class Membership:
    """Invariant: ``owned`` is empty unless a member; nothing is both owned and lost."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.UNSUBSCRIBED
        self.member_epoch = JOIN_EPOCH
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.lost: frozenset[TopicIdPartition] = frozenset()
        """Owned when we were fenced, and the user not told yet."""
        self.failure: ClientError | None = None
        self.joins = 0
        """How often we joined: what was owned before the last time may be another's."""
        self._subscription = Subscription()
        self._target: frozenset[TopicIdPartition] | None = None
        self._told: frozenset[TopicIdPartition] | None = None
        self._told_subscription: Subscription | None = None
        self._due_at = 0.0
        self._in_flight = False
        self._asked = False  # whether the coordinator may know us

    @property
    def subscription(self) -> Subscription:
        """What the user wants to read."""
        return self._subscription

    @property
    def is_joined(self) -> bool:
        """Whether heartbeats are to be sent."""
        return self.state in (MemberState.JOINING, MemberState.MEMBER)

    @property
    def to_revoke(self) -> frozenset[TopicIdPartition]:
        """Owned, and no longer assigned: to be given back."""
        return frozenset() if self._target is None else self.owned - self._target

    @property
    def to_assign(self) -> frozenset[TopicIdPartition]:
        """Assigned, and not owned yet; taken once nothing is to be revoked."""
        return frozenset() if self._target is None else self._target - self.owned

    @property
    def is_catching_up(self) -> bool:
        """Whether the coordinator may have raised our epoch, and we not heard yet."""
        return self._in_flight

    @property
    def wants_user(self) -> bool:
        """Whether the user has to be told something, in poll()."""
        dormant = self.state in (MemberState.FENCED, MemberState.AWAY)
        return bool(dormant or self.lost or self.to_revoke or self.to_assign or self.failure)

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join, or tell the coordinator that other topics are wanted."""
        self._subscription = subscription
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.FAILED):
            self._join()
        self._due_at = now

    def due_at(self) -> float | None:
        """When the next heartbeat is to be sent; None: not now, or one is under way."""
        return self._due_at if self.is_joined and not self._in_flight else None

    def heartbeat(self) -> Fields:
        """The next heartbeat, under way from now on. What has not changed since the last one that
        was answered is left out (KIP-848).
        """
        assert self.is_joined, self.state
        assert not self._in_flight, "one heartbeat at a time"
        self._in_flight = self._asked = True
        settings = self.settings
        whole = self._told_subscription is None
        fields: dict[str, Any] = {
            "group_id": settings.group_id,
            "member_id": settings.member_id,
            "member_epoch": self.member_epoch,
            "instance_id": settings.group_instance_id,
            "rack_id": settings.rack if whole else None,
            "rebalance_timeout": settings.rebalance_timeout_ms if whole else -1,
            "server_assignor": settings.assignor if whole else None,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": None,
        }
        if self._subscription != self._told_subscription:
            fields["subscribed_topic_names"] = list(self._subscription.topics)
            fields["subscribed_topic_regex"] = self._subscription.pattern
        if whole or self.owned != self._told:
            fields["topic_partitions"] = _wire(self.owned)
        self._told, self._told_subscription = self.owned, self._subscription
        return fields

    def leaving(self) -> Fields | None:
        """The heartbeat that leaves the group, None when there is nothing to leave. Its answer does
        not matter.
        """
        asked, self._asked = self._asked, False
        self.state = MemberState.UNSUBSCRIBED
        self.owned, self._target = frozenset(), None
        if not asked:
            return None
        static = self.settings.group_instance_id is not None
        return {
            "group_id": self.settings.group_id,
            "member_id": self.settings.member_id,
            "member_epoch": STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH,
            "instance_id": self.settings.group_instance_id,
        }

    def go_away(self) -> Fields | None:
        """As ``leaving``, because the user has not polled in time; what was owned is lost."""
        self.lost |= self.owned
        fields = self.leaving()
        self.state = MemberState.AWAY
        return fields

    def on_answer(self, answer: HeartbeatAnswer, now: float) -> None:
        """The coordinator's answer to ``heartbeat``; one that a leave overtook changes nothing."""
        self._in_flight = False
        if not self.is_joined:
            return
        if answer.error_code != ErrorCode.NONE:
            self._on_error(answer)
            return
        self.state = MemberState.MEMBER
        self.member_epoch = answer.member_epoch
        self._due_at = now if self._has_news else now + answer.interval_ms
        if answer.assigned is not None:
            self._target = None if answer.assigned == self.owned else answer.assigned

    def on_unanswered(self, retry_at: float) -> None:
        """Nothing was heard, or an error that passes: what it told may be unknown, so the next one
        tells all.
        """
        self._in_flight = False
        self._told_subscription = self._told = None
        self._due_at = retry_at

    def fail(self, problem: ClientError) -> None:
        """Being a member is not possible here."""
        self._in_flight = False
        self.lost |= self.owned
        self.owned, self._target = frozenset(), None
        self.state, self.failure = MemberState.FAILED, problem

    def passes(self, error_code: int) -> bool:
        """Whether the heartbeat is to be tried again, with back-off, perhaps elsewhere."""
        return error_code in _PASSING

    def revoked(self, partitions: frozenset[TopicIdPartition], now: float) -> None:
        """The user has let go of these; the coordinator hears at once. What was assigned or lost
        meanwhile stands.
        """
        self.owned -= partitions
        self._settle(now)

    def assigned(self, partitions: frozenset[TopicIdPartition], now: float) -> None:
        """These of ``to_assign`` are the user's from now on."""
        assert not self.to_revoke, "revoked before assigned"
        assert partitions <= self.to_assign, "assigned by the coordinator"
        self.owned |= partitions
        self._settle(now)

    def user_polls(self, now: float) -> None:
        """The user is there, and knows what was lost: join again if we were fenced, or away."""
        self.lost = frozenset()
        if self.state in (MemberState.FENCED, MemberState.AWAY):
            self._join()
            self._due_at = now

    def check(self) -> None:
        """Assert the invariants."""
        assert not self.owned & self.lost, (self.owned, self.lost)
        assert not self.owned or self.state is MemberState.MEMBER, self.state

    @property
    def _has_news(self) -> bool:
        return self.owned != self._told or self._subscription != self._told_subscription

    def _settle(self, now: float) -> None:
        self._due_at = now
        if self.owned == self._target:
            self._target = None

    def _join(self) -> None:
        self.state = MemberState.JOINING
        self.failure = None
        self.joins += 1
        self.member_epoch = JOIN_EPOCH
        self._target = self._told = self._told_subscription = None

    def _on_error(self, answer: HeartbeatAnswer) -> None:
        if answer.error_code in _FENCED:
            self.lost |= self.owned
            self.owned, self._target = frozenset(), None
            self.state = MemberState.FENCED
            return
        settings = self.settings
        what = f"member {settings.member_id} cannot be in group {settings.group_id!r}"
        self.fail(error_for(answer.error_code, what, detail=answer.message))


def _wire(partitions: frozenset[TopicIdPartition]) -> list[dict[str, Any]]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": each} for topic_id, each in by_topic.items()]


def read_assignment(topics: Sequence[Any] | None) -> frozenset[TopicIdPartition]:
    """The partitions of an answer's assignment."""
    return frozenset((each.topic_id, number) for each in topics or () for number in each.partitions)
