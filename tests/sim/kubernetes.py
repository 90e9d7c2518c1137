"""Kubernetes with one release under the watch over lost nodes: what its controllers would do.

One tick is a second. Nodes are lost and come back, operators delete Nodes, controllers take over
from one another. After each tick: a disk is given up only when its machine does not run and was
found lost for the whole time, while all other replicas are in sync and ZooKeeper has a majority;
no record has its last copy on a disk that was given up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tidemark.model.ids import InstantMs
from tidemark.model.replacement_risks import replacement_risks
from tidemark.model.restart_risks import PartitionState
from tidemark.model.topics import TopicPartition
from tidemark.plans.kubernetes.release import (
    BROKER,
    CONTROLLER,
    ZOOKEEPER,
    Claim,
    ClusterCheck,
    Node,
    Pod,
    PodSet,
    Release,
    Volume,
)
from tidemark.plans.kubernetes.replacement import DeleteClaim, DeletePod, RetainVolume, Step
from tidemark.plans.kubernetes.watch import Report, Watch

from sim.dice import Dice

NODES: Final = 5
SIZES: Final = {ZOOKEEPER: 3, BROKER: 3, CONTROLLER: 2}
WITH_DISKS: Final = (ZOOKEEPER, BROKER)
WAIT_TICKS: Final = 60
_TICK_MS: Final = 1_000
_LAG_TICKS: Final = 10
_FILL_TICKS: Final = 90


class BrokenError(AssertionError):
    """A guarantee does not hold."""


@dataclass
class Machine:
    """A node's machine. ``exists``: Kubernetes has a Node for it."""

    runs: bool = True
    exists: bool = True
    lost_for: int = 0


@dataclass
class Replica:
    """All replicas of one broker. ``disk`` is the uid of the claim that has its data."""

    disk: str
    in_sync: bool = True
    ticks: int = 0


@dataclass
class MiniPod:
    """A pod of the release."""

    name: str
    kind: str
    uid: str
    node: str = ""
    is_ready: bool = False
    is_deleting: bool = False

    @property
    def claims(self) -> tuple[str, ...]:
        return (f"data-{self.name}",) if self.kind in WITH_DISKS else ()


@dataclass
class MiniClaim:
    """A claim of a pod."""

    uid: str
    volume: str = ""
    is_deleting: bool = False


@dataclass
class World:
    """One run. ``given_up`` has the machines whose disks were given up."""

    dice: Dice
    ticks: int = 0
    pods: dict[str, MiniPod] = field(default_factory=dict)
    claims: dict[str, MiniClaim] = field(default_factory=dict)
    replicas: dict[int, Replica] = field(default_factory=dict)
    given_up: list[str] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.uids = count(1)
        self.machines = {f"node-{number}": Machine() for number in range(NODES)}
        self.volumes = {f"{kind}-{node}": node for kind in WITH_DISKS for node in self.machines}
        self.makes_claims = self.dice.chance(0.5)
        """Newer releases of Kubernetes make a missing claim for a pod that is there."""
        self.watch = self._new_watch()
        for _ in range(_FILL_TICKS):
            self.act()
        self.replicas = {
            number: Replica(self.claims[f"data-{BROKER}-{number}"].uid) for number in range(3)
        }

    def _new_watch(self) -> Watch:
        return Watch(wait_ms=WAIT_TICKS * _TICK_MS)

    # -- time

    def tick(self) -> None:
        """Let everything act once, and check."""
        self.ticks += 1
        for machine in self.machines.values():
            machine.lost_for = 0 if machine.runs and machine.exists else machine.lost_for + 1
        self.act()
        self._replicate()
        if self.dice.chance(0.5):
            self._look()
        if self.dice.chance(0.02):
            self.watch = self._new_watch()  # another controller is elected

    def _look(self) -> None:
        now = InstantMs(self.ticks * _TICK_MS)
        for effect in self.watch.look(self.release(), self._check, now):
            if isinstance(effect, Report):
                self.reports.append(effect)
            else:
                self._perform(effect)

    # -- what Kubernetes does

    def act(self) -> None:
        """StatefulSets, scheduler, kubelets, garbage collection of pods and claims."""
        for kind, size in SIZES.items():
            for number in range(size):
                self._make(f"{kind}-{number}", kind)
        for pod in list(self.pods.values()):
            self._schedule(pod)
            self._run(pod)
        in_use = {name for pod in self.pods.values() if pod.node for name in pod.claims}
        for name, claim in list(self.claims.items()):
            if claim.is_deleting and name not in in_use:
                self.volumes.pop(claim.volume, None)  # released: nobody else gets it
                del self.claims[name]

    def _make(self, name: str, kind: str) -> None:
        is_new = name not in self.pods
        pod = self.pods.get(name) or MiniPod(name, kind, f"pod-{next(self.uids)}")
        if is_new or (self.makes_claims and not pod.node):
            for claim in pod.claims:
                self.claims.setdefault(claim, MiniClaim(f"claim-{next(self.uids)}"))
        self.pods[name] = pod

    def _schedule(self, pod: MiniPod) -> None:
        if pod.node or pod.is_deleting:
            return
        claims = [self.claims.get(name) for name in pod.claims]
        if any(claim is None or claim.is_deleting for claim in claims):
            return
        taken = {other.node for other in self.pods.values() if other.kind == pod.kind}
        bound = {claim.volume for claim in self.claims.values()}
        for claim in claims:
            free = [volume for volume in self._volumes_of(pod.kind) if volume not in bound]
            wanted = [claim.volume] if claim is not None and claim.volume else free
            for volume in wanted:
                node = self.volumes[volume]
                if self._is_ready(node) and node not in taken:
                    assert claim is not None
                    claim.volume, pod.node = volume, node
                    return
        if not claims:
            pod.node = next((it for it in self.machines if self._is_ready(it)), "")

    def _volumes_of(self, kind: str) -> Iterator[str]:
        return (volume for volume in self.volumes if volume.startswith(f"{kind}-"))

    def _run(self, pod: MiniPod) -> None:
        machine = self.machines.get(pod.node)
        if machine is None:
            gone = pod.is_deleting
        elif not machine.exists:
            gone = self.dice.chance(0.1)  # garbage collection
            pod.is_ready = False
        else:
            pod.is_ready = machine.runs and self.dice.chance(0.3 if not pod.is_ready else 1)
            gone = machine.runs and pod.is_deleting
        if gone:
            del self.pods[pod.name]

    def _is_ready(self, node: str) -> bool:
        return self.machines[node].exists and self.machines[node].runs

    # -- what the brokers do

    def _replicate(self) -> None:
        for number, replica in self.replicas.items():
            claim = self.claims.get(f"data-{BROKER}-{number}")
            others = any(
                it.in_sync and self._is_alive(one)
                for one, it in self.replicas.items()
                if one != number
            )
            if not self._is_alive(number) or claim is None:
                replica.ticks += 1
                if replica.ticks > _LAG_TICKS and others:
                    replica.in_sync = False
                continue
            if claim.uid != replica.disk:
                if replica.in_sync and not others:
                    raise BrokenError(f"the only replica in sync was that of broker {number}")
                replica.disk, replica.in_sync, replica.ticks = claim.uid, False, 0
            replica.ticks += 1
            if not replica.in_sync and others and replica.ticks > _FILL_TICKS:
                replica.in_sync = True
            if replica.in_sync:
                replica.ticks = 0

    def _is_alive(self, broker: int) -> bool:
        pod = self.pods.get(f"{BROKER}-{broker}")
        return pod is not None and pod.is_ready and self.machines[pod.node].runs

    def _check(self, broker: int) -> ClusterCheck | None:
        if self.dice.chance(0.1):
            return None
        isr = tuple(one for one, replica in self.replicas.items() if replica.in_sync)
        leader = next((one for one in isr if self._is_alive(one)), None)
        state = PartitionState(TopicPartition("t", 0), leader, (0, 1, 2), isr, 2)
        return ClusterCheck(
            tuple(one for one in self.replicas if not self._is_alive(one)),
            int(len(isr) < 3 or leader is None),
            tuple(str(risk.kind) for risk in replacement_risks(broker, [state])),
        )

    # -- what the watch does

    def _perform(self, step: Step) -> None:
        if isinstance(step, RetainVolume):
            return
        if isinstance(step, DeleteClaim):
            claim = self.claims.get(step.name)
            if claim is not None and claim.uid == step.uid:
                self._check_given_up(step.name, self.volumes[claim.volume])
                claim.is_deleting = True
        else:
            self._delete_pod(step)

    def _delete_pod(self, step: DeletePod) -> None:
        pod = self.pods.get(step.name)
        if pod is None or pod.uid != step.uid:
            return
        if step.at_once and pod.node and self.machines[pod.node].runs:
            raise BrokenError(f"{pod.name} was deleted at once, although its machine runs")
        pod.is_deleting = True
        if step.at_once or not pod.node:
            del self.pods[step.name]

    def _check_given_up(self, name: str, node: str) -> None:
        machine = self.machines[node]
        if machine.runs or machine.exists:
            raise BrokenError(f"{name} was given up, although node {node} may come back")
        if machine.lost_for < WAIT_TICKS:
            raise BrokenError(f"{name} was given up after {machine.lost_for} s")
        _, kind, ordinal = name.split("-")
        others = [it for one, it in self.replicas.items() if one != int(ordinal)]
        if kind == BROKER and not all(replica.in_sync for replica in others):
            raise BrokenError(f"{name} was given up while another replica was not in sync")
        serving = [it for it in self.pods.values() if it.kind == ZOOKEEPER and it.is_ready]
        if kind == ZOOKEEPER and len(serving) < 2:
            raise BrokenError(f"{name} was given up without a majority of ZooKeeper")
        self.given_up.append(node)

    # -- what the watch sees

    def release(self) -> Release:
        """The release as the API server has it."""
        return Release(
            [PodSet(kind, kind, size, "1") for kind, size in SIZES.items()],
            [
                Pod(it.name, it.uid, it.kind, "1", it.node, it.claims, it.is_ready, it.is_deleting)
                for it in self.pods.values()
            ],
            {
                name: Claim(name, it.uid, it.volume, it.is_deleting)
                for name, it in self.claims.items()
            },
            {name: Volume(name, node) for name, node in self.volumes.items()},
            {name: Node(name, it.runs) for name, it in self.machines.items() if it.exists},
        )

    def problem(self) -> str:
        """What is not whole; '' if everything is."""
        waiting = [pod.name for pod in self.pods.values() if not pod.is_ready]
        behind = [f"broker {one}" for one, it in self.replicas.items() if not it.in_sync]
        return ", ".join(waiting + behind)


def run(seed: int) -> World:
    """Lose nodes, bring some back, delete the Nodes of others; then end with at most one lost."""
    world = World(Dice(seed))
    dice, names = world.dice, list(world.machines)
    for _ in range(1_500):
        world.tick()
        name = dice.pick(names)
        machine = world.machines[name]
        down = [one for one, it in world.machines.items() if not it.runs]
        if machine.runs and len(down) < 2 and dice.chance(0.01):
            machine.runs = False
        elif not machine.runs and machine.exists and name not in world.given_up:
            if dice.chance(0.02):
                machine.runs = True
            elif dice.chance(0.02):
                machine.exists = False  # an operator confirms that it will not come back
        elif not machine.exists and name not in world.given_up and dice.chance(0.002):
            machine.runs = machine.exists = True  # it comes back all the same
    for name, machine in world.machines.items():
        if machine.exists or name not in world.given_up:
            machine.runs = machine.exists = True
    return world


def settle(world: World) -> None:
    """Let time pass until everything is whole."""
    for _ in range(5_000):
        world.tick()
        if not world.problem():
            return
    raise BrokenError(f"after healing: {world.problem()}")
