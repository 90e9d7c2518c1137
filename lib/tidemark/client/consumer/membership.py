"""Member of a consumer group (KIP-848): heartbeats carry all state, the coordinator assigns.

A pure state machine; partitions are (topic id, number). The owned partitions follow the assigned
ones in two steps:

    assigned    {A, B}     {B}                           {B, C}
    owned       {A, B} --> {B}  once the user released   {B, C}
                           A; the next heartbeat reports it; the coordinator can assign A elsewhere

When the coordinator does not know the member, or has a newer epoch, all owned partitions are lost
at once: other members may read them already. The member joins again only after the user was
notified. Until then commits carry the old epoch, so that offsets of lost partitions are refused.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from tidemark.client.errors import ClientError, error_for
from tidemark.model.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Epoch of a leaving static member, whose partitions stay reserved until its session ends."""

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
    """State of a member."""

    UNSUBSCRIBED = auto()
    JOINING = auto()  # joining, for the first time or again
    MEMBER = auto()
    FENCED = auto()  # fenced, with the user not notified yet
    AWAY = auto()  # left because of a missing poll; the next poll joins again
    FAILED = auto()  # refused, without retry


class MemberSettings(NamedTuple):
    """Settings of a member, constant for its life."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = 300_000
    assignor: str | None = None


class Subscription(NamedTuple):
    """Topics by name, or by a regular expression that the coordinator evaluates (RE2J)."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class HeartbeatAnswer(NamedTuple):
    """Coordinator's answer; ``assigned`` is None if the assignment is unchanged."""

    error_code: int
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: frozenset[TopicIdPartition] | None = None
    message: str | None = None


class Membership:
    """Member of one group.

    Invariant: ``owned`` is empty unless joined; no partition is both owned and lost.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.UNSUBSCRIBED
        self.member_epoch = JOIN_EPOCH
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.lost: frozenset[TopicIdPartition] = frozenset()
        """Partitions owned when the member was fenced, until the user is notified."""
        self.failure: ClientError | None = None
        self.joins = 0
        """Number of joins: partitions owned before the last one may belong to another member."""
        self._subscription = Subscription()
        self._target: frozenset[TopicIdPartition] | None = None
        self._told: frozenset[TopicIdPartition] | None = None
        self._told_subscription: Subscription | None = None
        self._due_at = 0.0
        self._in_flight = False
        self._asked = False  # True if the coordinator may know this member

    @property
    def subscription(self) -> Subscription:
        """Current subscription."""
        return self._subscription

    @property
    def is_joined(self) -> bool:
        """True if heartbeats are sent."""
        return self.state in (MemberState.JOINING, MemberState.MEMBER)

    @property
    def to_revoke(self) -> frozenset[TopicIdPartition]:
        """Partitions that are owned and no longer assigned."""
        return frozenset() if self._target is None else self.owned - self._target

    @property
    def to_assign(self) -> frozenset[TopicIdPartition]:
        """Partitions that are assigned and not owned, once nothing is left to revoke."""
        return frozenset() if self._target is None else self._target - self.owned

    @property
    def is_catching_up(self) -> bool:
        """True if the coordinator may have raised the member epoch without an answer so far."""
        return self._in_flight

    @property
    def wants_user(self) -> bool:
        """True if the user must be notified within ``poll``."""
        dormant = self.state in (MemberState.FENCED, MemberState.AWAY)
        return bool(dormant or self.lost or self.to_revoke or self.to_assign or self.failure)

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join, or send a new subscription."""
        self._subscription = subscription
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.FAILED):
            self._join()
        self._due_at = now

    def due_at(self) -> float | None:
        """Time of the next heartbeat; None if none is due, or one is in flight."""
        return self._due_at if self.is_joined and not self._in_flight else None

    def heartbeat(self) -> Fields:
        """Return the next heartbeat, now in flight.

        Fields unchanged since the last answered heartbeat are left out (KIP-848).
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
        """Return the heartbeat that leaves the group, None if not joined.

        Its answer has no effect.
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
        """Leave because of a missing ``poll``: as ``leaving``, and owned partitions are lost."""
        self.lost |= self.owned
        fields = self.leaving()
        self.state = MemberState.AWAY
        return fields

    def on_answer(self, answer: HeartbeatAnswer, now: float) -> None:
        """Apply the answer to ``heartbeat``; an answer after a leave has no effect."""
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
        """Retry after a missing answer or a retriable error.

        The next heartbeat carries all fields.
        """
        self._in_flight = False
        self._told_subscription = self._told = None
        self._due_at = retry_at

    def fail(self, problem: ClientError) -> None:
        """Fail the membership with an error that retries cannot fix."""
        self._in_flight = False
        self.lost |= self.owned
        self.owned, self._target = frozenset(), None
        self.state, self.failure = MemberState.FAILED, problem

    def passes(self, error_code: int) -> bool:
        """True if the heartbeat is retried after this error."""
        return error_code in _PASSING

    def revoked(self, partitions: frozenset[TopicIdPartition], now: float) -> None:
        """Remove partitions that the user has released; the next heartbeat is due now.

        Partitions assigned or lost meanwhile are not affected.
        """
        self.owned -= partitions
        self._settle(now)

    def assigned(self, partitions: frozenset[TopicIdPartition], now: float) -> None:
        """Add partitions of ``to_assign`` to those owned."""
        assert not self.to_revoke, "revoked before assigned"
        assert partitions <= self.to_assign, "assigned by the coordinator"
        self.owned |= partitions
        self._settle(now)

    def user_polls(self, now: float) -> None:
        """Note a ``poll`` of a notified user: join again if fenced, or after leaving."""
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
    """Read the partitions of an assignment."""
    return frozenset((each.topic_id, number) for each in topics or () for number in each.partitions)
