"""What strikes whom, when, and for how long: drawn from a seed, and nothing else.

Never more than one broker is disabled at a time, and never more than one coordinator of a kind: a
step has at most one fault of each, and the next step begins when all are back.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Role(Enum):
    """Whom a fault strikes; who that is at the moment is found out when it strikes."""

    BROKER = "broker"
    LEADER = "leader of partition"
    STATE_LEADER = "leader of transaction state"
    OFFSETS_LEADER = "leader of group offsets"
    ACTIVE = "active controller"
    ZOOKEEPER = "zookeeper"
    COORDINATOR = "txn-coordinator"
    OWNER = "owner of transaction shard"
    SHARE_COORDINATOR = "share-coordinator"


BROKER_ROLES: Final = (Role.BROKER, Role.LEADER, Role.STATE_LEADER, Role.OFFSETS_LEADER)
COORDINATOR_ROLES: Final = (Role.COORDINATOR, Role.OWNER)


class Kind(Enum):
    """What happens to it, and what ends that."""

    KILL = "kill -9"  # ended by a start
    POWER = "power loss"  # kill -9 of a process and its supervisor, ended by a start
    BOUNCE = "hard bounce"  # kill -9 and a start at once
    STOP = "clean stop"  # SIGTERM; a start once it has ended
    PAUSE = "pause"  # SIGSTOP beyond the session timeout, SIGCONT
    EXPIRE = "session expiry"  # the session is closed under a process that runs
    EIO = "failing disk"  # writes fail, what was not synced is gone; checked and mounted, a start
    DAMAGE = "damage"  # kill -9, files lose what was synced, and a start at once


class Fault(NamedTuple):
    """One fault of a step. Seconds, ``after_s`` from the step's start."""

    kind: Kind
    role: Role
    number: int  # of the process, or of the partition that it leads or owns; else 0
    after_s: float
    hold_s: float

    @property
    def strikes_broker(self) -> bool:
        """Whether it disables a broker."""
        return self.role in BROKER_ROLES

    @property
    def strikes_coordinator(self) -> bool:
        """Whether it disables a txn-coordinator."""
        return self.role in COORDINATOR_ROLES

    def __str__(self) -> str:
        numbered = self.role not in (Role.ACTIVE, Role.ZOOKEEPER)
        whom = f"{self.role.value} {self.number}" if numbered else self.role.value
        return f"{self.kind.value} of {whom} at +{self.after_s:.1f} s for {self.hold_s:.1f} s"


class Act(NamedTuple):
    """A fault begins, or ends."""

    at_s: float
    fault: Fault
    begins: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Quiet for ``calm_s``, then faults that may overlap, then healing.

    At most one broker at a time has lost records: after such a fault all becomes whole.
    ``until_whole``: the next step waits for full ISRs; else only until every process is ready.
    """

    number: int
    calm_s: float
    faults: tuple[Fault, ...]
    until_whole: bool

    def acts(self) -> list[Act]:
        """Every begin and end, in the order of time."""
        begins = [Act(fault.after_s, fault, begins=True) for fault in self.faults]
        ends = [Act(fault.after_s + fault.hold_s, fault, begins=False) for fault in self.faults]
        return sorted([*begins, *ends], key=lambda act: (act.at_s, not act.begins))

    def __str__(self) -> str:
        faults = "; ".join(map(str, self.faults))
        until = "until whole" if self.until_whole else "until ready"
        return f"{self.number:>3}  calm {self.calm_s:.1f} s, {faults}, {until}"


class Ground(NamedTuple):
    """What the plan is drawn for."""

    brokers: int
    partitions: int
    session_s: float
    coordinators: int
    internal_partitions: int
    disks_fail: bool
    """Whether brokers have disks that can be made to fail."""


ROUND_STEPS: Final = 10
"""Steps of a round. A run makes a whole one at least, however slow the machine is."""
_CALM_S: Final = (1.0, 4.0)
_DOWN_S: Final = (0.5, 8.0)
_PAUSED_BEYOND_S: Final = (1.0, 5.0)
_ZOOKEEPER_DOWN_S: Final = (0.2, 6.0)
_SECOND_AFTER_S: Final = (0.0, 3.0)
# By number, or by what it leads, the coordinators' topics as often as the others.
_BROKER_ROLE_WEIGHTS: Final = (0.4, 0.3, 0.15, 0.15)
_OWNER_SHARE: Final = 0.6
_UNTIL_WHOLE_SHARE: Final = 0.7
_LOSSES: Final = frozenset({Kind.EIO, Kind.DAMAGE})
_BROKER_KINDS: Final = (Kind.KILL, Kind.POWER, Kind.BOUNCE, Kind.STOP, Kind.PAUSE, Kind.EXPIRE)
_COORDINATOR_KINDS: Final = _BROKER_KINDS
_CONTROLLER_KINDS: Final = (Kind.KILL, Kind.POWER, Kind.STOP, Kind.PAUSE, Kind.EXPIRE)


def draw_steps(seed: int, ground: Ground) -> Iterator[Step]:
    """Steps without end, in rounds: each round has every sort of fault, in an order of its own."""
    dice = random.Random(seed)
    number = 0
    while True:
        for faults in _draw_round(dice, ground):
            number += 1
            calm_s = _seconds(dice, _CALM_S)
            waits = dice.random() < _UNTIL_WHOLE_SHARE
            loses = any(fault.kind in _LOSSES for fault in faults)
            yield Step(number, calm_s, faults, waits or loses)


def _draw_round(dice: random.Random, ground: Ground) -> list[tuple[Fault, ...]]:
    def broker(*kinds: Kind, after_s: float = 0.0) -> Fault:
        return _broker_fault(dice, ground, dice.choice(kinds), after_s)

    def controller(after_s: float = 0.0) -> Fault:
        kind = dice.choice(_CONTROLLER_KINDS)
        return Fault(kind, Role.ACTIVE, 0, after_s, _hold(dice, ground, kind))

    def zookeeper(after_s: float = 0.0) -> Fault:
        return Fault(Kind.KILL, Role.ZOOKEEPER, 0, after_s, _seconds(dice, _ZOOKEEPER_DOWN_S))

    def coordinator(after_s: float = 0.0) -> Fault:
        return _coordinator_fault(dice, ground, after_s)

    def share_coordinator(after_s: float = 0.0) -> Fault:
        kind, number = dice.choice(_COORDINATOR_KINDS), dice.randint(1, ground.coordinators)
        return Fault(kind, Role.SHARE_COORDINATOR, number, after_s, _hold(dice, ground, kind))

    second_s, third_s, fourth_s = (_seconds(dice, _SECOND_AFTER_S) for _ in range(3))
    other = dice.choice((controller, zookeeper))
    steps: list[tuple[Fault, ...]] = [
        (broker(Kind.KILL, Kind.POWER, Kind.BOUNCE),),
        (broker(Kind.STOP), share_coordinator(fourth_s)),
        (broker(Kind.PAUSE, Kind.EXPIRE),),
        (controller(),),
        (zookeeper(),),
        (coordinator(),),
        (broker(Kind.DAMAGE),),
        (broker(Kind.EIO if ground.disks_fail else Kind.DAMAGE),),
        (broker(*_BROKER_KINDS), coordinator(third_s)),
        (broker(*_BROKER_KINDS), other(second_s)),
    ]
    assert len(steps) == ROUND_STEPS
    dice.shuffle(steps)
    return steps


def _broker_fault(dice: random.Random, ground: Ground, kind: Kind, after_s: float) -> Fault:
    hold_s = _hold(dice, ground, kind)
    (role,) = dice.choices(BROKER_ROLES, _BROKER_ROLE_WEIGHTS)
    if role is Role.BROKER:
        return Fault(kind, role, dice.randint(1, ground.brokers), after_s, hold_s)
    partitions = ground.partitions if role is Role.LEADER else ground.internal_partitions
    return Fault(kind, role, dice.randrange(partitions), after_s, hold_s)


def _coordinator_fault(dice: random.Random, ground: Ground, after_s: float) -> Fault:
    kind = dice.choice(_COORDINATOR_KINDS)
    hold_s = _hold(dice, ground, kind)
    if dice.random() < _OWNER_SHARE:
        shard = dice.randrange(ground.internal_partitions)
        return Fault(kind, Role.OWNER, shard, after_s, hold_s)
    return Fault(kind, Role.COORDINATOR, dice.randint(1, ground.coordinators), after_s, hold_s)


def _hold(dice: random.Random, ground: Ground, kind: Kind) -> float:
    if kind in (Kind.BOUNCE, Kind.EXPIRE, Kind.DAMAGE):
        return 0.0
    if kind is Kind.PAUSE:
        return round(ground.session_s + _seconds(dice, _PAUSED_BEYOND_S), 1)
    return _seconds(dice, _DOWN_S)


def _seconds(dice: random.Random, bounds: tuple[float, float]) -> float:
    return round(dice.uniform(*bounds), 1)
