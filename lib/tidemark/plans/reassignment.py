"""Plans for replicas: even over brokers, spread over racks, never two on one node, with as few
moves as possible. Pure: assignments in, assignments out.

``balanced`` spreads all given partitions evenly over the given brokers. ``drained`` moves the
replicas of brokers that are to be removed, and nothing else. In both, every partition keeps its
replication factor, replicas that need not move stay, and preferred leaders are then balanced among
the replicas.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from tidemark.model.topics import TopicPartition
from tidemark.plans.balance import Balance
from tidemark.plans.errors import PlanError

Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]


class Site(NamedTuple):
    """Location of a broker. Brokers of one node count as in one rack. A broker that does not take
    replicas (because it is not alive) keeps its own.
    """

    broker_id: int
    rack: str = ""
    node: str = ""
    takes: bool = True


class Move(NamedTuple):
    """Change of one partition in a plan."""

    partition: TopicPartition
    before: Replicas
    after: Replicas

    @property
    def adding(self) -> Replicas:
        """Brokers to which the partition is copied."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removing(self) -> Replicas:
        """Brokers whose replica is removed."""
        return tuple(one for one in self.before if one not in self.after)


def balanced(current: Assignment, sites: Iterable[Site]) -> list[Move]:
    """Return moves after which these brokers have equally many replicas and leaderships, within
    one, as far as racks and nodes allow. Raises PlanError.
    """
    return _planned(current, _Map(sites), drain=False)


def drained(current: Assignment, sites: Iterable[Site]) -> list[Move]:
    """Return moves off all brokers that are not among ``sites``. Raises PlanError."""
    return _planned(current, _Map(sites), drain=True)


def _planned(current: Assignment, sites: "_Map", *, drain: bool) -> list[Move]:
    names = sorted(current)
    before = [current[name] for name in names]
    kinds = [name.topic for name in names]
    chosen = _filled(names, before, sites, drain=drain)
    moved = [set(one) != set(two) for one, two in zip(before, chosen, strict=True)]
    Balance(sites.takers, chosen, _ReplicaRules(kinds, before, sites, moved, drain=drain)).improve()
    leaders = [[_first_leader(*both)] for both in zip(before, chosen, strict=True)]
    free = [not drain or touched for touched in moved]
    Balance(sites.takers, leaders, _LeaderRules(kinds, before, chosen, free)).improve()
    after = [_ordered(*each) for each in zip(before, chosen, leaders, strict=True)]
    moves = [Move(*each) for each in zip(names, before, after, strict=True)]
    return [move for move in moves if move.before != move.after]


# -- locations of brokers


class _Map:
    """Nodes and racks of the brokers that may be chosen."""

    def __init__(self, sites: Iterable[Site]) -> None:
        by_id = {site.broker_id: site for site in sites}
        self.takers = sorted(site.broker_id for site in by_id.values() if site.takes)
        self.node = {one: site.node or f"broker-{one}" for one, site in by_id.items()}
        rack_of_node: dict[str, str] = {}
        for broker, node in self.node.items():
            rack = by_id[broker].rack
            rack_of_node[node] = min(rack_of_node.get(node, rack), rack)
        self.rack = {broker: rack_of_node[node] for broker, node in self.node.items()}
        self._nodes_in = Counter(rack_of_node.values())
        self._shares: dict[int, dict[str, tuple[int, int]]] = {}

    def share(self, replication_factor: int) -> Mapping[str, tuple[int, int]]:
        """Return the least and greatest number of a partition's replicas in each rack."""
        found = self._shares.get(replication_factor)
        if found is None:
            found = self._shares[replication_factor] = self._share(replication_factor)
        return found

    def _share(self, replication_factor: int) -> dict[str, tuple[int, int]]:
        """Fill racks evenly, each up to its number of nodes."""
        level = 0
        while sum(min(size, level + 1) for size in self._nodes_in.values()) <= replication_factor:
            level += 1
            if level > replication_factor:
                break
        full = sum(min(size, level) for size in self._nodes_in.values())
        more = 0 if full >= replication_factor else 1
        return {
            rack: (min(size, level), min(size, level + more))
            for rack, size in self._nodes_in.items()
        }


# -- replicas


def _filled(
    names: Sequence[TopicPartition], before: Sequence[Replicas], sites: _Map, *, drain: bool
) -> list[list[int]]:
    """Return replicas that may stay, the rest on the emptiest brokers that are allowed."""
    chosen = [_kept(replicas, sites, drain=drain) for replicas in before]
    loads = Counter(broker for its_own in chosen for broker in its_own)
    for name, replicas, its_own in zip(names, before, chosen, strict=True):
        while len(its_own) < len(replicas):
            broker = _best(its_own, len(replicas), sites, loads)
            if broker is None:
                raise _too_few(name, replicas, sites)
            its_own.append(broker)
            loads[broker] += 1
    return chosen


def _too_few(name: TopicPartition, replicas: Replicas, sites: _Map) -> PlanError:
    nodes = len({sites.node[one] for one in sites.takers})
    return PlanError(
        f"{name} has {len(replicas)} replicas; brokers"
        f" {','.join(map(str, sites.takers)) or '(none)'} are on {nodes} node(s)",
        where="brokers",
        remedy="name more brokers, on other nodes: no node holds two replicas of one partition",
    )


def _kept(replicas: Replicas, sites: _Map, *, drain: bool) -> list[int]:
    """Return the replicas that may stay. In a drain they stay even if racks are uneven."""
    kept: list[int] = []
    if drain and all(broker in sites.node for broker in replicas):
        return list(replicas)
    for broker in replicas:
        if broker in sites.node and sites.node[broker] not in {sites.node[one] for one in kept}:
            kept.append(broker)
    if drain:
        return kept
    share = sites.share(len(replicas))
    for rack, (_, most) in share.items():
        of_rack = [one for one in kept if sites.rack[one] == rack]
        kept = [one for one in kept if one not in of_rack[most:]]
    while True:
        counts = Counter(sites.rack[one] for one in kept)
        lacking = sum(max(0, least - counts[rack]) for rack, (least, _) in share.items())
        if lacking <= len(replicas) - len(kept):
            return kept
        spare = [one for one in kept if counts[sites.rack[one]] > share[sites.rack[one]][0]]
        kept.remove(spare[-1])


def _best(its_own: Sequence[int], factor: int, sites: _Map, loads: Mapping[int, int]) -> int | None:
    """Return the best broker for one more replica; None if every node has one."""
    share = sites.share(factor)
    nodes = {sites.node[one] for one in its_own}
    counts = Counter(sites.rack[one] for one in its_own)

    def order(broker: int) -> tuple[bool, int, int, int]:
        rack = sites.rack[broker]
        needed = counts[rack] < share[rack][0]
        over = max(0, counts[rack] + 1 - share[rack][1])
        return not needed, over, loads[broker], broker

    open_to_it = (one for one in sites.takers if sites.node[one] not in nodes)
    return min(open_to_it, key=order, default=None)


class _ReplicaRules:
    """Rules for replicas: each copied replica costs 1."""

    def __init__(
        self,
        kinds: Sequence[str],
        before: Sequence[Replicas],
        sites: _Map,
        moved: Sequence[bool],
        *,
        drain: bool,
    ) -> None:
        self._kinds = kinds
        self._before = before
        self._sites = sites
        self._moved = moved
        self._drain = drain

    def kind(self, item: int) -> str:
        return self._kinds[item]

    def cost(self, item: int, broker: int) -> int:
        return int(broker not in self._before[item])

    def may_swap(self, item: int, chosen: Sequence[int], drop: int, put: int) -> bool:
        if self._drain and (not self._moved[item] or drop in self._before[item]):
            return False
        node_of, rack_of = self._sites.node, self._sites.rack
        node = node_of[put]
        if node != node_of[drop] and node in [node_of[one] for one in chosen]:
            return False
        left, entered = rack_of[drop], rack_of[put]
        if left == entered:
            return True
        share = self._sites.share(len(chosen))
        racks = [rack_of[one] for one in chosen]
        return racks.count(left) > share[left][0] and racks.count(entered) < share[entered][1]


# -- leaders


def _first_leader(before: Replicas, chosen: Sequence[int]) -> int:
    """Return the preferred leader, if it stays; else the first replica that stays, or the first."""
    return next((one for one in before if one in chosen), chosen[0])


class _LeaderRules:
    """Rules for leaders: another preferred leader costs 1, one that has to copy first costs 2."""

    def __init__(
        self,
        kinds: Sequence[str],
        before: Sequence[Replicas],
        replicas: Sequence[Sequence[int]],
        free: Sequence[bool],
    ) -> None:
        self._kinds = kinds
        self._before = before
        self._replicas = replicas
        self._free = free

    def kind(self, item: int) -> str:
        return self._kinds[item]

    def cost(self, item: int, broker: int) -> int:
        before = self._before[item]
        if broker == before[0]:
            return 0
        return 1 if broker in before else 2

    def may_swap(self, item: int, chosen: Sequence[int], drop: int, put: int) -> bool:
        return self._free[item] and put in self._replicas[item] and drop in chosen


def _ordered(before: Replicas, chosen: Sequence[int], leader: Sequence[int]) -> Replicas:
    """Return the replicas in the earlier order, new ones in freed places, the leader first."""
    coming = [one for one in chosen if one not in before]
    places = [one if one in chosen else coming.pop(0) for one in before]
    first: Set[int] = set(leader)
    return (*leader, *(one for one in places if one not in first))
