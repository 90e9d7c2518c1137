"""Placement of replicas: leaders evenly over brokers, replicas over racks, no two on one node."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage

from controller.core.cluster import Loads
from controller.core.liveness import is_active

Replicas = tuple[BrokerId, ...]


class Site(NamedTuple):
    """Place of a broker. ``turn`` breaks ties: its position after a random rotation of brokers."""

    broker_id: BrokerId
    rack: str
    node: str
    is_active: bool
    turn: int


def node_of(broker: BrokerImage) -> str:
    """Return the machine of a broker. A broker that names none counts as alone on a machine."""
    return broker.node or f"broker-{broker.broker_id}"


def place(
    brokers: Iterable[BrokerImage],
    loads: Loads,
    existing: Sequence[Replicas],
    *,
    partition_count: int,
    replication_factor: int,
    dice: int,
) -> list[Replicas]:
    """Return the replicas, preferred first, of ``partition_count`` new partitions of one topic.

    ``loads`` are the present loads of brokers, ``existing`` the present partitions of the topic.
    Balance within the topic comes first, balance over the cluster second. A broker that is fenced
    or shuts down gets a replica only if there are too few others, and is never first. Raises
    TidemarkError INVALID_REPLICATION_FACTOR.
    """
    sites = _sites(brokers, dice)
    _check_enough(sites, replication_factor)
    own = Loads()
    own.add(existing)
    total = loads.copy()
    placed: list[Replicas] = []
    for _ in range(partition_count):
        replicas = _place_one(sites, own, total, replication_factor)
        own.add((replicas,))
        total.add((replicas,))
        placed.append(replicas)
    return placed


def _sites(brokers: Iterable[BrokerImage], dice: int) -> list[Site]:
    ordered = sorted(brokers, key=lambda broker: broker.broker_id)
    count = len(ordered)
    return [
        Site(
            broker.broker_id,
            broker.rack or "",
            node_of(broker),
            is_active(broker),
            (index - dice) % count,
        )
        for index, broker in enumerate(ordered)
    ]


def _check_enough(sites: Sequence[Site], replication_factor: int) -> None:
    words = f"Unable to replicate the partition {replication_factor} time(s): "
    if sites and not any(site.is_active for site in sites):
        raise TidemarkError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            words + "All brokers are currently fenced or in controlled shutdown.",
        )
    cannot = (
        f"The target replication factor of {replication_factor} cannot be reached because only "
    )
    if replication_factor > len(sites):
        raise TidemarkError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{words}{cannot}{len(sites)} broker(s) are registered.",
        )
    nodes = len({site.node for site in sites})
    if replication_factor > nodes:
        raise TidemarkError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{words}{cannot}{nodes} node(s) have brokers, and no node holds two replicas.",
        )


def _place_one(
    sites: Sequence[Site], own: Loads, total: Loads, replication_factor: int
) -> Replicas:
    """Choose the replicas of one partition, greedily. Each choice takes one node, so that enough
    nodes at the start suffice.
    """
    first = min(
        (site for site in sites if site.is_active),
        key=lambda site: (
            own.preferred[site.broker_id],
            own.replicas[site.broker_id],
            total.preferred[site.broker_id],
            total.replicas[site.broker_id],
            site.turn,
        ),
    )
    chosen = [first]
    nodes = {first.node}
    racks = Counter([first.rack])
    while len(chosen) < replication_factor:
        after = first.turn + 1
        best = min(
            (site for site in sites if site.node not in nodes),
            key=lambda site: (
                not site.is_active,
                racks[site.rack],
                own.replicas[site.broker_id],
                total.replicas[site.broker_id],
                (site.turn - after) % len(sites),
            ),
        )
        chosen.append(best)
        nodes.add(best.node)
        racks[best.rack] += 1
    return tuple(site.broker_id for site in chosen)


def check_assignment(
    replicas: Replicas, brokers: dict[BrokerId, BrokerImage], replication_factor: int | None
) -> None:
    """Raise TidemarkError INVALID_REPLICA_ASSIGNMENT for an assignment that is not allowed."""
    problem = _assignment_problem(replicas, brokers, replication_factor)
    if problem is not None:
        raise TidemarkError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _assignment_problem(
    replicas: Replicas, brokers: dict[BrokerId, BrokerImage], replication_factor: int | None
) -> str | None:
    the = "The manual partition assignment includes "
    if not replicas:
        return f"{the}an empty replica list."
    for broker_id, count in Counter(replicas).items():
        if count > 1:
            return f"{the}the broker {broker_id} more than once."
        if broker_id not in brokers:
            return f"{the}broker {broker_id}, but no such broker is registered."
    if replication_factor is not None and len(replicas) != replication_factor:
        return (
            f"{the}a partition with {len(replicas)} replica(s), but this is not consistent with"
            f" previous partitions, which have {replication_factor} replica(s)."
        )
    node, count = Counter(node_of(brokers[broker_id]) for broker_id in replicas).most_common(1)[0]
    if count > 1:
        return f"{the}{count} replicas of one partition on node {node}."
    if all(brokers[broker_id].fenced for broker_id in replicas):
        return f"All brokers specified in the manual partition assignment {replicas} are fenced."
    return None
