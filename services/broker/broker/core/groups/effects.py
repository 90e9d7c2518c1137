"""Effects of the group coordinator: replies to send, and look-ups of share groups."""

from dataclasses import dataclass, field

from tidemark.codec.group_records import GroupRecord
from tidemark.protocol.shard import Decision, Writer

from broker.core.groups.id_requests import CoordinatorReply
from broker.core.groups.requests import GroupReply


@dataclass(frozen=True, slots=True)
class Membership:
    """A member in one generation of a group, or in one epoch of its own (KIP-848)."""

    group_id: str
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Reply to send to the request with this id. Every request id is answered exactly once."""

    to: int
    reply: CoordinatorReply
    confirms: Membership | None = None
    """Membership with which the reply assigns partitions. It is sent once its records are
    committed, and the group may have gone on without the member by then.
    """


@dataclass(frozen=True, slots=True)
class LookUpShareGroup:
    """Ask the share-coordinator whether this group exists, and report the result with
    ShareGroupLookedUp, failures included.
    """

    group_id: str


GroupEffect = Answer | LookUpShareGroup


@dataclass(slots=True)
class Outcome:
    """A decision under construction: records and replies, in order."""

    records: list[GroupRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    writer: Writer | None = None

    def answer(self, to: int, reply: GroupReply, confirms: Membership | None = None) -> None:
        """Answer a request: the current one, or an earlier one that waits."""
        self.answers.append(Answer(to, reply, confirms))

    def decision(self) -> Decision[GroupRecord, Answer]:
        """Return the decision in the form the runtime takes."""
        return Decision(tuple(self.records), tuple(self.answers), self.writer)
