"""ShareMembership: member of a share group (KIP-932). A pure state machine.

Heartbeats carry all state, the coordinator assigns. Several members may have the same partition, so
that nothing is revoked: an assignment replaces the one before. A member that was removed by the
coordinator, or has another epoch there, joins again at once.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from tidemark.client.errors import ClientError, error_for
from tidemark.client.share.share_session import SharePartition
from tidemark.model.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which a member joins again, unless it was joining."""
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

Fields = Mapping[str, Any]


class MemberState(Enum):
    """State of a member."""

    UNSUBSCRIBED = auto()
    JOINING = auto()
    MEMBER = auto()
    AWAY = auto()  # left because of a missing poll; the next poll joins again
    FAILED = auto()  # refused, without retry


class ShareMemberSettings(NamedTuple):
    """Settings of a member, constant for its life."""

    group_id: str
    member_id: str
    rack: str | None = None


class ShareHeartbeatAnswer(NamedTuple):
    """Coordinator's answer; ``assigned`` is None if the assignment is unchanged."""

    error_code: int
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: frozenset[SharePartition] | None = None
    message: str | None = None


class ShareMembership:
    """Member of one group."""

    def __init__(self, settings: ShareMemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.UNSUBSCRIBED
        self.member_epoch = JOIN_EPOCH
        self.assigned: frozenset[SharePartition] = frozenset()
        self.topics: tuple[str, ...] = ()
        self.failure: ClientError | None = None
        self._sent_topics: tuple[str, ...] | None = None
        """Topics as the coordinator has them; None: the next heartbeat carries all fields."""
        self._due_at = 0.0
        self._in_flight = False
        self._asked = False

    @property
    def is_joined(self) -> bool:
        """True if heartbeats are sent."""
        return self.state in (MemberState.JOINING, MemberState.MEMBER)

    def subscribe(self, topics: tuple[str, ...], now: float) -> None:
        """Join with these topics, or change them."""
        self.topics = topics
        self._due_at = now
        if not self.is_joined:
            self._join()

    def due_at(self) -> float | None:
        """Return the time of the next heartbeat; None while none is to be sent."""
        return self._due_at if self.is_joined and not self._in_flight else None

    def heartbeat(self) -> Fields:
        """Return the fields of the heartbeat that is due."""
        assert self.is_joined, self.state
        self._in_flight = self._asked = True
        fields: dict[str, Any] = {
            "group_id": self.settings.group_id,
            "member_id": self.settings.member_id,
            "member_epoch": self.member_epoch,
        }
        if self._sent_topics is None:
            fields["rack_id"] = self.settings.rack
        if self._sent_topics != self.topics:
            fields["subscribed_topic_names"] = list(self.topics)
        self._sent_topics = self.topics
        return fields

    def leaving(self) -> Fields | None:
        """Leave the group; return the fields of the last heartbeat, None if none is needed."""
        known = self._asked and self.state is not MemberState.UNSUBSCRIBED
        self._stop(MemberState.UNSUBSCRIBED)
        if not known:
            return None
        return {
            "group_id": self.settings.group_id,
            "member_id": self.settings.member_id,
            "member_epoch": LEAVE_EPOCH,
        }

    def go_away(self) -> Fields | None:
        """Leave because of a missing ``poll``; the next one joins again."""
        fields = self.leaving()
        self.state = MemberState.AWAY
        return fields

    def user_polls(self, now: float) -> None:
        """Join again after leaving because of a missing ``poll``."""
        if self.state is MemberState.AWAY:
            self._join()
            self._due_at = now

    def passes(self, error_code: int) -> bool:
        """True if the heartbeat is retried after this error."""
        return error_code in _PASSING

    def on_answer(self, answer: ShareHeartbeatAnswer, now: float) -> None:
        """Apply the answer to ``heartbeat``; an answer after a leave has no effect."""
        self._in_flight = False
        if not self.is_joined:
            return
        if answer.error_code != ErrorCode.NONE:
            self._on_error(answer, now)
            return
        self.state = MemberState.MEMBER
        self.member_epoch = answer.member_epoch
        self._due_at = now if self._sent_topics != self.topics else now + answer.interval_ms
        if answer.assigned is not None:
            self.assigned = answer.assigned

    def on_unanswered(self, retry_at: float) -> None:
        """Retry after a missing answer or a retriable error, with all fields."""
        self._in_flight = False
        self._sent_topics = None
        self._due_at = retry_at

    def fail(self, problem: ClientError) -> None:
        """Fail the membership with an error that retries cannot fix."""
        self._stop(MemberState.FAILED)
        self.failure = problem

    def check(self) -> None:
        """Assert the invariants."""
        assert not self.assigned or self.state is MemberState.MEMBER, self.state
        assert (self.failure is not None) == (self.state is MemberState.FAILED), self.state

    def _on_error(self, answer: ShareHeartbeatAnswer, now: float) -> None:
        if answer.error_code in _UNKNOWN and self.member_epoch != JOIN_EPOCH:
            self._join()
            self._due_at = now
            return
        settings = self.settings
        what = f"member {settings.member_id} cannot be in share group {settings.group_id!r}"
        self.fail(error_for(answer.error_code, what, detail=answer.message))

    def _join(self) -> None:
        self._stop(MemberState.JOINING)
        self.failure = None

    def _stop(self, state: MemberState) -> None:
        self.state = state
        self.member_epoch = JOIN_EPOCH
        self.assigned = frozenset()
        self._sent_topics = None
        self._in_flight = False
