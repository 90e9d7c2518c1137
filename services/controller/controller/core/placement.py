"""Where replicas go: leaders even over brokers, replicas over racks, never two on one node."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage

from controller.core.cluster import Loads

Replicas = tuple[BrokerId, ...]


class Site(NamedTuple):
    """Where a broker is. ``turn`` breaks ties: the dice turn the circle of brokers."""

    broker_id: BrokerId
    rack: str
    node: str
    fenced: bool
    turn: int


def node_of(broker: BrokerImage) -> str:
    """The machine a broker runs on; a broker that does not say is taken to have one of its own."""
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
    """Replicas, preferred first, for ``partition_count`` new partitions of one topic.

    ``loads`` is what brokers carry already, ``existing`` the topic's partitions so far. Spread
    within the topic comes first, over the cluster second. A fenced broker gets a replica only where
    live ones do not suffice, and is never first. Raises TidemarkError INVALID_REPLICATION_FACTOR.
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
            broker.fenced,
            (index - dice) % count,
        )
        for index, broker in enumerate(ordered)
    ]


def _check_enough(sites: Sequence[Site], replication_factor: int) -> None:
    words = f"Unable to replicate the partition {replication_factor} time(s): "
    if sites and all(site.fenced for site in sites):
        raise TidemarkError(
            ErrorCode.INVALID_REPLICATION_FACTOR, words + "All brokers are currently fenced."
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
    """Greedy: a choice takes one node only, so that enough nodes at the start are enough."""
    first = min(
        (site for site in sites if not site.fenced),
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
                site.fenced,
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
    """Raises TidemarkError INVALID_REPLICA_ASSIGNMENT for what must not be assigned by hand."""
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
