"""Steps of long operations: what to do next to reach the wanted replicas. Pure.

An operation is a list of moves. Its progress is read from the metadata image, so that any
controller can continue it: a step that is repeated, or lost with a controller, does no harm.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from pydantic import Field
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage, PartitionImage
from tidemark.model.topics import TopicPartition
from tidemark.plans.reassignment import Move

from controller.admin.models import Model

MOVING_MAX: Final = 100
"""Partitions of one operation that are being moved at a time."""
MESSAGES_MAX: Final = 50
WAIT_MS_MAX: Final = 10 * 60_000
"""Time without progress after which an operation no longer waits for brokers to be in sync."""

Kind = Literal["reassign", "drain", "undrain", "decommission"]
State = Literal["pending", "running", "cancelling", "succeeded", "failed", "cancelled"]
FINISHED: Final[frozenset[State]] = frozenset({"succeeded", "failed", "cancelled"})


class OperationMessage(Model):
    """Message of an operation."""

    at_ms: int = Field(description="ms since 1970", examples=[1_790_000_000_000])
    text: str = Field(examples=["120 of 400 partitions have their replicas"])


class Operation(Model):
    """Long action. ``progress`` is 0 to 1."""

    operation_id: str = Field(examples=["5f2c9a0d7be14c3f"])
    action: Kind = Field(examples=["decommission"])
    subject: str = Field(description="broker or partitions", examples=["broker 3"])
    state: State = Field(examples=["running"])
    progress: float = Field(ge=0, le=1, examples=[0.3])
    messages: list[OperationMessage] = Field(description=f"the last {MESSAGES_MAX}")
    moves_count: int = Field(description="partitions to move", examples=[400])
    broker_id: int | None = Field(default=None, examples=[3])
    principal: str = Field(examples=["User:ANONYMOUS"])
    created_ms: int = Field(description="ms since 1970", examples=[1_790_000_000_000])
    updated_ms: int = Field(examples=[1_790_000_000_000])

    @property
    def is_finished(self) -> bool:
        """True if nothing is left to do."""
        return self.state in FINISHED


class Step(NamedTuple):
    """Next actions of an operation, and how far it is. Finished if there are none and ``done``.

    ``waiting`` counts partitions whose leader cannot be elected yet. If such are left when it is
    done, it has given up.
    """

    submit: list[Move]
    cancel: list[TopicPartition]
    elect: list[TopicPartition]
    progress: float
    done: bool
    text: str
    waiting: int = 0


def next_step(
    image: ClusterImage,
    operation: Operation,
    moves: Sequence[Move],
    refused: frozenset[TopicPartition],
    *,
    now_ms: int,
) -> Step:
    """Return the next step. ``refused`` are partitions whose move the controller has refused,
    ``now_ms`` is the wall time.
    """
    if operation.state == "cancelling":
        return _cancelling(image, operation, moves)
    submit: list[Move] = []
    elect: list[TopicPartition] = []
    finished = moving = waiting = 0
    for move in moves:
        part = _partition(image, move.partition)
        if part is None or move.partition in refused or part.replicas == move.after:
            if part is not None and part.is_reassigning:
                moving += 1
            elif part is not None and _wants_election(image, operation, part):
                elect.append(move.partition)
            elif part is not None and _lacks_leader(operation, part):
                waiting += 1
            else:
                finished += 1
        elif _target(part) == move.after:
            moving += 1
        elif part.is_reassigning:
            moving += 1  # another one moves it; it is submitted afterwards
        else:
            submit.append(move)
    room = max(0, MOVING_MAX - moving)
    total = max(1, len(moves))
    left = len(submit) + moving + len(elect)
    gives_up = not left and waiting > 0 and now_ms - operation.updated_ms >= WAIT_MS_MAX
    return Step(
        submit[:room],
        [],
        [] if submit or moving else elect,
        min(1.0, finished / total),
        gives_up or not left + waiting,
        _text(finished, len(moves), len(refused), waiting=waiting, gives_up=gives_up),
        waiting,
    )


def _text(finished: int, total: int, refused: int, *, waiting: int, gives_up: bool) -> str:
    text = f"{finished} of {total} partitions are done"
    if refused:
        text += f", {refused} of them were refused"
    if waiting and not gives_up:
        text += f", {waiting} wait until the broker that is to lead them is alive and in sync"
    if gives_up:
        text += (
            f"; {waiting} are left: the broker that is to lead them was not in sync for"
            f" {WAIT_MS_MAX // 60_000} min; repeat the operation once it is"
        )
    return text


def _cancelling(image: ClusterImage, operation: Operation, moves: Sequence[Move]) -> Step:
    """Cancel the moves under way that are the operation's own."""
    cancel = [
        move.partition
        for move in moves
        if (part := _partition(image, move.partition)) is not None
        and part.is_reassigning
        and _target(part) == move.after
    ]
    text = f"{len(cancel)} moves are being cancelled" if cancel else "cancelled"
    return Step([], cancel, [], operation.progress, not cancel, text)


def _partition(image: ClusterImage, at: TopicPartition) -> PartitionImage | None:
    """Return a partition; None if it no longer exists."""
    topic = image.topics.get(at.topic)
    if topic is None or at.partition >= len(topic.partitions):
        return None
    return topic.partitions[at.partition]


def _target(part: PartitionImage) -> tuple[int, ...]:
    return tuple(int(one) for one in part.replicas if one not in part.removing)


def _wants_election(image: ClusterImage, operation: Operation, part: PartitionImage) -> bool:
    """True if the preferred leader of a partition could lead it, and does not."""
    if operation.action == "reassign":
        return False
    first = part.replicas[0]
    broker = image.brokers.get(BrokerId(first))
    alive = broker is not None and not broker.fenced and not broker.shutting_down
    return part.leader != first and first in part.isr and alive


def _lacks_leader(operation: Operation, part: PartitionImage) -> bool:
    """True while an operation has not reached its purpose: a broker that is drained still leads, or
    one whose drain is undone does not lead again.
    """
    if operation.action == "undrain":
        return part.replicas[0] == operation.broker_id != part.leader
    return operation.action == "drain" and part.leader == operation.broker_id


def drain_moves(image: ClusterImage, broker_id: int) -> tuple[list[Move], int]:
    """Return orders of replicas in which a broker comes last, and the number of partitions that
    have no other replica.
    """
    moves: list[Move] = []
    alone = 0
    for topic in image.topics.values():
        for part in topic.partitions:
            if part.leader != broker_id and part.replicas[0] != broker_id:
                continue
            if len(part.replicas) == 1:
                alone += 1
                continue
            before = tuple(int(one) for one in part.replicas)
            rest = [one for one in before if one != broker_id]
            rest.sort(key=lambda one: one not in part.isr)
            after = (*rest, broker_id) if broker_id in before else before
            moves.append(Move(TopicPartition(topic.name, part.partition), before, after))
    return moves, alone


def restored(image: ClusterImage, drained: Sequence[Move]) -> list[Move]:
    """Return the moves that undo a drain, of partitions whose replicas are still the same. A move
    whose order is restored already is there if the first replica does not lead.
    """
    found: list[Move] = []
    for move in drained:
        part = _partition(image, move.partition)
        if part is None or part.is_reassigning or set(part.replicas) != set(move.before):
            continue
        now = tuple(int(one) for one in part.replicas)
        if now != move.before or part.leader != move.before[0]:
            found.append(Move(move.partition, now, move.before))
    return found
