"""Calls of ``tidemark cluster reassign``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.cli.admin_client import open_admin
from tidemark.cli.cluster import log_dir_moves, reassign_throttle
from tidemark.cli.failure import CommandError
from tidemark.client.admin.admin import Admin, ConfigResource, Reassignment, TopicDescription
from tidemark.client.errors import ClientError
from tidemark.model.topics import TopicPartition
from tidemark.plans import reassignment
from tidemark.plans.errors import PlanError
from tidemark.plans.reassignment import Move, Replicas, Site
from tidemark.runtime.exit_codes import ExitCode

NAMES_SHOWN_MAX = 10
_NODE_KEY = "node"

Assignment = dict[TopicPartition, Replicas]


class Target(NamedTuple):
    """Goal of a plan. No topics means all, no brokers all live ones. With ``leaving``, these
    brokers are drained and nothing else moves.
    """

    topics: Sequence[str] = ()
    brokers: Sequence[int] = ()
    leaving: Sequence[int] = ()


class Plan(NamedTuple):
    """Moves of a plan, with notes for the user."""

    moves: list[Move]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Order:
    """Moves to apply. ``rate`` in bytes per second for each broker; None sets no throttle."""

    target: Mapping[TopicPartition, Replicas]
    rate: int | None = None
    additional: bool = False
    allow_rf_change: bool = False
    directories: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)
    """Log directories by partition and broker; the brokers choose the others."""


class Outcome(NamedTuple):
    """Result of an order: the earlier assignment, and the errors of refused moves."""

    before: Assignment
    failures: dict[TopicPartition, ClientError]


# -- plan


async def plan(bootstrap: str, target: Target) -> Plan:
    """Compute a plan without changing anything. Raises CommandError, ClientError."""
    async with open_admin(bootstrap) as admin:
        alive = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
        _require_alive(target.brokers, alive)
        current = _assignment(await admin.describe_topics(target.topics or None))
        _require_still(await admin.list_partition_reassignments(), current)
        sites = await _sites(admin, target, alive)
    held = {broker for replicas in current.values() for broker in replicas}
    _require_known(target.leaving, held | set(alive))
    away = held - set(alive) - set(target.leaving)
    try:
        if target.leaving:
            sites += [Site(broker, takes=False) for broker in sorted(away)]
            return Plan(reassignment.drained(current, sites), [])
        moves = reassignment.balanced(current, sites)
    except PlanError as problem:
        raise CommandError(problem.what, hint=problem.remedy) from None
    leaving = away & {one for move in moves for one in move.removing}
    return Plan(moves, [f"broker {one} is not alive: its replicas move" for one in sorted(leaving)])


async def _sites(admin: Admin, target: Target, alive: Sequence[int]) -> list[Site]:
    cluster = await admin.describe_cluster()
    wanted = [one for one in target.brokers or alive if one not in target.leaving]
    resources = [ConfigResource("broker", str(one)) for one in wanted]
    described = await admin.describe_configs(resources)
    racks = {broker.broker_id: broker.rack or "" for broker in cluster.brokers}
    nodes = {
        int(resource.name): entries[_NODE_KEY].value or ""
        for resource, entries in described.items()
        if _NODE_KEY in entries
    }
    return [Site(one, racks.get(one, ""), nodes.get(one, "")) for one in wanted]


# -- apply


async def apply(bootstrap: str, order: Order, save: Callable[[Assignment], None]) -> Outcome:
    """Set throttles, then submit the moves. ``save`` is called with the present assignment before
    any change. Raises CommandError for an order that cannot be applied.
    """
    async with open_admin(bootstrap) as admin:
        before = await before_order(admin, order)
        save(before)
        ongoing = await admin.list_partition_reassignments()
        if order.rate is not None:
            flows = {name: _flow(name, before[name], order, ongoing) for name in before}
            flows |= {
                name: reassign_throttle.Flow(move.original, move.adding)
                for name, move in ongoing.items()
                if name not in flows
            }
            await reassign_throttle.set_throttles(admin, flows, order.rate)
        # Before the replicas are there: they are then created in their directories.
        await log_dir_moves.order(admin, order.directories)
        results = await admin.alter_partition_reassignments(
            order.target, allow_replication_factor_change=order.allow_rf_change
        )
    failures = {name: problem for name, problem in results.items() if problem is not None}
    return Outcome(before, failures)


async def before_order(admin: Admin, order: Order) -> Assignment:
    """Return the assignment of an order's partitions before any move in progress. Raises
    CommandError for an order that cannot be applied.
    """
    alive = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
    current = _assignment(await admin.describe_topics(sorted({one.topic for one in order.target})))
    ongoing = await admin.list_partition_reassignments()
    if not order.additional and ongoing:
        raise CommandError(
            f"replicas are being moved already: {_some(ongoing)}",
            hint="wait (tidemark cluster reassign watch), cancel, or add to them with --additional",
        )
    before: Assignment = {}
    for name, wanted in order.target.items():
        replicas = current.get(name)
        if replicas is None:
            raise CommandError(
                f"there is no partition {name}",
                hint=f"`tidemark topic describe {name.topic}` lists the partitions",
            )
        if name in ongoing:
            replicas = ongoing[name].original
        _require_alive([one for one in wanted if one not in replicas], alive, str(name))
        if len(wanted) != len(replicas) and not order.allow_rf_change:
            raise CommandError(
                f"{name} has {len(replicas)} replicas, and is to have {len(wanted)}:"
                " that changes its replication factor",
                hint="name as many brokers, or pass --allow-replication-factor-change",
            )
        before[name] = replicas
    return before


def _flow(
    name: TopicPartition,
    before: Replicas,
    order: Order,
    ongoing: Mapping[TopicPartition, Reassignment],
) -> reassign_throttle.Flow:
    sources = set(before)
    if name in ongoing:
        sources |= set(ongoing[name].replicas)
    coming = tuple(one for one in order.target[name] if one not in before)
    return reassign_throttle.Flow(tuple(sorted(sources)), coming)


# -- cancel


async def cancel(bootstrap: str, named: Iterable[TopicPartition] | None) -> dict[str, list[str]]:
    """Cancel the moves of these partitions, or all. Raises CommandError if there are none."""
    async with open_admin(bootstrap) as admin:
        ongoing = await admin.list_partition_reassignments()
        wanted = list(ongoing) if named is None else list(named)
        moving = [name for name in wanted if name in ongoing]
        if not moving:
            what = "no move is under way" + (f" of {_some(wanted)}" if wanted else "")
            raise CommandError(
                what, hint="`tidemark cluster reassign watch` shows the moves under way"
            )
        results = await admin.alter_partition_reassignments(dict.fromkeys(moving, None))
        failures = [problem for problem in results.values() if problem is not None]
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"also: {other}")
            raise failures[0]
        cleared = await reassign_throttle.clear_when_still(admin)
    return {
        "cancelled": [str(name) for name in moving],
        "not_moving": [str(name) for name in wanted if name not in ongoing],
        "unthrottled": cleared,
    }


# -- checks and messages


def _assignment(topics: Mapping[str, TopicDescription]) -> Assignment:
    return {
        TopicPartition(name, one.partition): one.replicas
        for name, topic in topics.items()
        for one in topic.partitions
    }


def _require_alive(wanted: Iterable[int], alive: Sequence[int], whose: str = "") -> None:
    dead = sorted(set(wanted) - set(alive))
    if dead:
        names = ", ".join(map(str, dead))
        raise CommandError(
            (f"{whose} would go to " if whose else "") + f"broker {names}, which is not alive",
            hint=f"start it, or choose among {', '.join(map(str, sorted(alive)))}"
            " (tidemark cluster brokers)",
        )


def _require_known(leaving: Iterable[int], known: Iterable[int]) -> None:
    unknown = sorted(set(leaving) - set(known))
    if unknown:
        raise CommandError(
            f"broker {unknown[0]} is not alive and has no replica: no replica needs to move",
            hint="`tidemark cluster brokers` shows the brokers",
        )


def _require_still(ongoing: Mapping[TopicPartition, Reassignment], current: Assignment) -> None:
    moving = [name for name in ongoing if name in current]
    if moving:
        raise CommandError(
            f"replicas are being moved already: {_some(moving)}",
            hint="wait (tidemark cluster reassign watch), or cancel that first",
        )


def _some(names: Iterable[TopicPartition]) -> str:
    shown = [str(name) for name in sorted(names)]
    more = f" and {len(shown) - NAMES_SHOWN_MAX} more" if len(shown) > NAMES_SHOWN_MAX else ""
    return " ".join(shown[:NAMES_SHOWN_MAX]) + more


def refused(failures: Mapping[TopicPartition, ClientError], asked: int) -> CommandError:
    """Return one error for all refused moves."""
    lines = [f"{len(failures)} of {asked} moves were refused"]
    shown = list(failures.values())[:NAMES_SHOWN_MAX]
    lines += [f"  {problem.message} ({problem.code.name})" for problem in shown]
    return CommandError(
        "\n".join(lines), hint="the others are under way: watch them", code=ExitCode.FAILED
    )
