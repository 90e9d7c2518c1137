"""Reassignments of replicas: those in progress, plans, and elections of leaders."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from tidemark.model.topics import TopicPartition
from tidemark.plans.errors import PlanError
from tidemark.plans.reassignment import Move, Site, balanced, drained

from controller.admin import topics
from controller.admin.broker_calls import by_leader
from controller.admin.context import AdminContext
from controller.admin.errors import bad_value, conflict, not_found
from controller.admin.log_sizes import leader_sizes
from controller.admin.models import Input, Model, PartitionName

MOVES_MAX = 20_000
PLANNED_MAX = 50_000
REPLICAS_MAX = 128


class ReassignmentView(PartitionName):
    """Move in progress."""

    replica_ids: list[int] = Field(description="with those added and removed", examples=[[1, 2, 4]])
    adding_replicas: list[int] = Field(examples=[[4]])
    removing_replicas: list[int] = Field(examples=[[1]])
    isr: list[int] = Field(examples=[[1, 2]])
    caught_up: int = Field(description="added replicas that are in sync", examples=[0])


class MoveView(PartitionName):
    """Change of the replicas of one partition."""

    before: list[int] = Field(examples=[[1, 2]])
    after: list[int] = Field(examples=[[2, 3]])
    adding: list[int] = Field(description="brokers to which it is copied", examples=[[3]])
    removing: list[int] = Field(examples=[[1]])


class PlanView(Model):
    """Moves of a plan. Nothing has been changed."""

    moves: list[MoveView]
    replicas_copied: int = Field(examples=[1])
    bytes_copied: int | None = Field(
        description="logs of the partitions that are copied; null if a leader is late",
        examples=[1_000_000],
    )
    notes: list[str] = Field(examples=[[]])


class PlanRequest(Input):
    """Goal of a plan: replicas spread evenly, or taken away from brokers."""

    topics: list[str] = Field(
        default=[], max_length=10_000, description="none: all topics", examples=[["orders"]]
    )
    brokers: list[int] = Field(
        default=[], max_length=1_024, description="that take replicas; none: all live ones"
    )
    leaving: list[int] = Field(
        default=[], max_length=1_024, description="brokers to empty; nothing else moves"
    )


class WantedReplicas(Input):
    """Replicas that one partition is to have, preferred leader first."""

    topic_name: str = Field(max_length=249, examples=["orders"])
    partition_id: int = Field(ge=0, lt=2**31, examples=[0])
    replicas: list[int] = Field(min_length=1, max_length=REPLICAS_MAX, examples=[[2, 3]])


class Election(PartitionName):
    """Result of an election."""

    result: Literal["elected", "not needed", "failed"] = Field(examples=["elected"])
    error: str | None = Field(description="name of Kafka's error", examples=[None])


# -- in progress


async def list_reassignments(ctx: AdminContext, topic: str | None = None) -> list[ReassignmentView]:
    """Return the moves in progress, of one topic or of all, sorted. Raises AdminError."""
    image = ctx.image
    if topic is None:
        ctx.require(Operation.DESCRIBE)
    names = sorted(image.topics) if topic is None else [ctx.topic(topic).name]
    return [
        ReassignmentView(
            topic_name=name,
            partition_id=one.partition,
            replica_ids=list(one.replicas),
            adding_replicas=list(one.adding),
            removing_replicas=list(one.removing),
            isr=list(one.isr),
            caught_up=sum(broker in one.isr for broker in one.adding),
        )
        for name in names
        for one in image.topics[name].partitions
        if one.is_reassigning
    ]


async def get_reassignment(ctx: AdminContext, topic: str, partition: int) -> ReassignmentView:
    """Return the move of one partition. Raises AdminError."""
    topics.require_partition(ctx, topic, partition)
    for one in await list_reassignments(ctx, topic):
        if one.partition_id == partition:
            return one
    raise not_found(
        f"{topic}-{partition} is not being moved",
        field="partition_id",
        remedy="GET /v3/clusters/{cluster_id}/topics/-/partitions/-/reassignment lists the moves",
    )


async def cancel(
    ctx: AdminContext, partitions: Sequence[tuple[str, int]] | None, *, dry_run: bool
) -> list[ReassignmentView]:
    """Cancel moves (None: all), and return them. Raises AdminError if there is none."""
    ctx.require(Operation.ALTER)
    moving = await list_reassignments(ctx)
    if partitions is not None:
        wanted = set(partitions)
        moving = [one for one in moving if (one.topic_name, one.partition_id) in wanted]
    if not moving:
        raise conflict("no such partition is being moved", field="partitions")
    if not dry_run:
        moves = dict.fromkeys(
            (TopicPartition(one.topic_name, one.partition_id) for one in moving), None
        )
        async with ctx.brokers.client() as admin:
            await admin.alter_partition_reassignments(moves)
    return moving


# -- plans


async def plan(ctx: AdminContext, request: PlanRequest) -> PlanView:
    """Return the moves that reach a goal; changes nothing. Raises AdminError."""
    ctx.require(Operation.DESCRIBE)
    image = ctx.image
    for index, name in enumerate(request.topics):
        if name not in image.topics:
            raise bad_value(f"topic {name!r} does not exist", field=f"topics.{index}")
    moves, notes = planned(image, request)
    return await plan_view(ctx, moves, notes)


def planned(image: ClusterImage, request: PlanRequest) -> tuple[list[Move], list[str]]:
    """Return the moves of a plan with notes. Pure. Raises AdminError."""
    names = request.topics or sorted(image.topics)
    current = {
        TopicPartition(name, one.partition): tuple(int(each) for each in one.replicas)
        for name in names
        for one in image.topics[name].partitions
    }
    if len(current) > PLANNED_MAX:
        raise bad_value(
            f"a plan may have {PLANNED_MAX} partitions, not {len(current)}", field="topics"
        )
    moving = [
        at for at in current if image.topics[at.topic].partitions[at.partition].is_reassigning
    ]
    if moving:
        raise conflict(
            f"{len(moving)} partitions are being moved already, {moving[0]} for one",
            remedy="wait until they have been moved, or cancel that",
        )
    alive = {int(one) for one, broker in image.brokers.items() if not broker.fenced}
    _require_alive(request.brokers, alive)
    held = {broker for replicas in current.values() for broker in replicas}
    unknown = sorted(set(request.leaving) - held - alive)
    if unknown:
        raise bad_value(f"broker {unknown[0]} does not exist", field="leaving")
    takers = [one for one in request.brokers or sorted(alive) if one not in request.leaving]
    sites = [_site(image, one) for one in takers]
    away = held - alive - set(request.leaving)
    try:
        if request.leaving:
            sites += [Site(broker, takes=False) for broker in sorted(away)]
            return drained(current, sites), []
        moves = balanced(current, sites)
    except PlanError as problem:
        raise bad_value(problem.what, field=problem.where, remedy=problem.remedy) from None
    notes = [f"broker {one} is not alive: its replicas move" for one in sorted(away)]
    return moves, notes


def _require_alive(wanted: Iterable[int], alive: set[int]) -> None:
    dead = sorted(set(wanted) - alive)
    if dead:
        raise bad_value(
            f"broker {dead[0]} is not alive",
            field="brokers",
            remedy=f"start it, or choose among {', '.join(map(str, sorted(alive)))}",
        )


def _site(image: ClusterImage, broker_id: int) -> Site:
    broker = image.brokers[BrokerId(broker_id)]
    return Site(broker_id, broker.rack or "", broker.node)


async def plan_view(ctx: AdminContext, moves: Sequence[Move], notes: Sequence[str]) -> PlanView:
    """Return the view of a plan, with the bytes that it copies as far as they are known."""
    image = ctx.image
    keys = [(move.partition.topic, move.partition.partition) for move in moves]
    sizes = await leader_sizes(ctx, by_leader(image, keys))
    copied = [
        (len(move.adding), sizes.get((move.partition.topic, move.partition.partition)))
        for move in moves
        if move.adding
    ]
    known = all(size is not None for _, size in copied)
    return PlanView(
        moves=[move_view(move) for move in moves],
        replicas_copied=sum(count for count, _ in copied),
        bytes_copied=sum(count * (size or 0) for count, size in copied) if known else None,
        notes=list(notes),
    )


def move_view(move: Move) -> MoveView:
    """Return the view of one move."""
    return MoveView(
        topic_name=move.partition.topic,
        partition_id=move.partition.partition,
        before=list(move.before),
        after=list(move.after),
        adding=list(move.adding),
        removing=list(move.removing),
    )


def moves_to(image: ClusterImage, wanted: Sequence[WantedReplicas]) -> list[Move]:
    """Return the moves to wanted replicas, without partitions that have them. Raises AdminError."""
    alive = {int(one) for one, broker in image.brokers.items() if not broker.fenced}
    found: dict[TopicPartition, Move] = {}
    for index, each in enumerate(wanted):
        field = f"moves.{index}"
        at = TopicPartition(each.topic_name, each.partition_id)
        topic = image.topics.get(at.topic)
        if topic is None or at.partition >= len(topic.partitions):
            raise bad_value(f"there is no partition {at}", field=field)
        if at in found:
            raise bad_value(f"partition {at} is named twice", field=field)
        if len(set(each.replicas)) != len(each.replicas):
            raise bad_value(f"{at} names a broker twice", field=f"{field}.replicas")
        part = topic.partitions[at.partition]
        dead = sorted(set(each.replicas) - alive - {int(one) for one in part.replicas})
        if dead:
            raise bad_value(f"broker {dead[0]} is not alive", field=f"{field}.replicas")
        before = tuple(int(one) for one in part.replicas)
        found[at] = Move(at, before, tuple(each.replicas))
    return [move for move in found.values() if move.before != move.after]


# -- elections


async def elect_leaders(
    ctx: AdminContext,
    partitions: Sequence[tuple[str, int]] | None,
    *,
    unclean: bool = False,
    dry_run: bool = False,
) -> list[Election]:
    """Elect preferred leaders (None: of all partitions that need it). With ``unclean``, elect any
    live replica of partitions without a leader, which may lose records. Raises AdminError.
    """
    ctx.require(Operation.ALTER)
    for topic, number in partitions or ():
        topics.require_partition(ctx, topic, number)
    if dry_run:
        return _would_elect(ctx.image, partitions, unclean=unclean)
    wanted = None if partitions is None else [TopicPartition(*one) for one in partitions]
    async with ctx.brokers.client() as admin:
        results: Mapping[TopicPartition, ErrorCode] = await admin.elect_leaders(
            wanted, unclean=unclean
        )
    return [_election(at, code) for at, code in sorted(results.items())]


def _election(at: TopicPartition, code: ErrorCode) -> Election:
    result: Literal["elected", "not needed", "failed"] = "failed"
    if code is ErrorCode.NONE:
        result = "elected"
    elif code is ErrorCode.ELECTION_NOT_NEEDED:
        result = "not needed"
    return Election(
        topic_name=at.topic,
        partition_id=at.partition,
        result=result,
        error=code.name if result == "failed" else None,
    )


def _would_elect(
    image: ClusterImage, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool
) -> list[Election]:
    chosen = partitions
    if chosen is None:
        chosen = [
            (name, one.partition) for name in image.topics for one in image.topics[name].partitions
        ]
    found: list[Election] = []
    for topic, number in sorted(chosen):
        part = image.topics[topic].partitions[number]
        needed = part.leader < 0 if unclean else part.leader != part.replicas[0]
        live = [
            one for one in part.replicas if one in image.brokers and not image.brokers[one].fenced
        ]
        possible = (
            bool(live) if unclean else part.replicas[0] in live and part.replicas[0] in part.isr
        )
        if not needed and partitions is None:
            continue
        code = ErrorCode.NONE if possible else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        found.append(
            _election(
                TopicPartition(topic, number), code if needed else ErrorCode.ELECTION_NOT_NEEDED
            )
        )
    return found
