"""What the shell must do for the group coordinator: answer, and nothing else."""

from dataclasses import dataclass, field

from tidemark.codec.group_records import GroupRecord
from tidemark.machine.shard import Decision, Writer

from broker.core.groups.requests import GroupReply


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this reply to who asked with this request id. Every request id is answered once."""

    to: int
    reply: GroupReply


@dataclass(slots=True)
class Outcome:
    """A decision while it is made: records and answers in the order of happening."""

    records: list[GroupRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    writer: Writer | None = None

    def answer(self, to: int, reply: GroupReply) -> None:
        """Answer a request, this one or one that waited."""
        self.answers.append(Answer(to, reply))

    def decision(self) -> Decision[GroupRecord, Answer]:
        """The decision as the runtime takes it."""
        return Decision(tuple(self.records), tuple(self.answers), self.writer)
