"""Faults become signals: who is meant now, and what begins and ends it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from chaos.cluster import BROKERS, ChaosCluster
from chaos.history import Partition
from chaos.plan import Act, Fault, Kind, Role
from chaos.sessions import Onlooker
from chaos.topics import (
    DATA_PARTITIONS,
    NAMES,
    OFFSETS_PARTITIONS,
    PARTITIONS,
    STATE_PARTITIONS,
)
from tidemark.cli.dev.layout import SHARE_COORDINATOR, TXN_COORDINATOR
from tidemark.cli.failure import CommandError

Say = Callable[[str], None]
ZOOKEEPER: Final = "zookeeper"
_SOON_S: Final = 5.0
_POLL_S: Final = 0.1
_LED: Final[Mapping[Role, Sequence[Partition]]] = {
    Role.LEADER: DATA_PARTITIONS,
    Role.STATE_LEADER: STATE_PARTITIONS,
    Role.OFFSETS_LEADER: OFFSETS_PARTITIONS,
}
_T = TypeVar("_T")


class Strikes:
    """Carries out acts. ``problems`` has what should not have happened while doing so."""

    def __init__(self, cluster: ChaosCluster, onlooker: Onlooker, say: Say) -> None:
        self._cluster, self._onlooker, self._say = cluster, onlooker, say
        self._struck: dict[Fault, str] = {}
        self._begins: Mapping[Kind, Callable[[str], None]] = {
            Kind.KILL: cluster.kill,
            Kind.POWER: cluster.cut_power,
            Kind.BOUNCE: cluster.kill,
            Kind.STOP: cluster.signal_stop,
            Kind.PAUSE: cluster.pause,
            Kind.EXPIRE: self._expire,
            Kind.EIO: cluster.fail_disk,
            Kind.DAMAGE: self._damage,
        }
        self._ends: Mapping[Kind, Callable[[str], None]] = {
            Kind.KILL: cluster.begin,
            Kind.POWER: cluster.begin,
            Kind.BOUNCE: cluster.begin,
            Kind.STOP: cluster.begin,
            Kind.PAUSE: cluster.resume,
            Kind.EXPIRE: lambda _: None,
            Kind.EIO: cluster.mend_disk,
            Kind.DAMAGE: cluster.begin,
        }
        self.done: Counter[str] = Counter()
        self.expired_controllers = 0
        self.problems: list[str] = []

    def carry_out(self, act: Act) -> None:
        """One begin or end."""
        if act.begins:
            self._begin(act.fault)
        elif act.fault in self._struck:
            self._end(act.fault, self._struck.pop(act.fault))

    def end_all(self) -> None:
        """What is still held is let go."""
        for fault in list(self._struck):
            self._end(fault, self._struck.pop(fault))

    def _begin(self, fault: Fault) -> None:
        name = self._whom(fault)
        if name is None:
            self._say(f"nobody to strike: {fault}")
            return
        self._struck[fault] = name
        self.done[f"{fault.kind.value}, {_kind_and_number(name)[0]}"] += 1
        self._say(f"{fault.kind.value} of {name}")
        self._begins[fault.kind](name)

    def _end(self, fault: Fault, name: str) -> None:
        if fault.kind is not Kind.EXPIRE:
            self._say(f"{name} goes on" if fault.kind is Kind.PAUSE else f"{name} starts")
        try:
            self._ends[fault.kind](name)
        except CommandError as problem:
            self.problems.append(str(problem))

    def _whom(self, fault: Fault) -> str | None:
        """None where nobody can tell, as without ZooKeeper."""
        if fault.role is Role.ZOOKEEPER:
            return ZOOKEEPER
        if fault.role is Role.BROKER:
            return f"broker-{fault.number}"
        if fault.role in _LED:
            return self._leader(_LED[fault.role][fault.number])
        if fault.role is Role.COORDINATOR:
            return f"{TXN_COORDINATOR}-{fault.number}"
        if fault.role is Role.SHARE_COORDINATOR:
            return f"{SHARE_COORDINATOR}-{fault.number}"
        if fault.role is Role.OWNER:
            owner = _soon(lambda: self._onlooker.owner_of(fault.number))
            return None if owner is None else f"{TXN_COORDINATOR}-{owner}"
        active = _soon(self._onlooker.active_controller)
        return None if active is None else f"controller-{active[0]}"

    def _leader(self, partition: Partition) -> str | None:
        """Of whom the brokers say so in the highest epoch."""
        shown = [
            one
            for broker in range(1, BROKERS + 1)
            for place, one in self._cluster.partitions(broker, NAMES).items()
            if place == partition and one.leader_id >= 0
        ]
        latest = max(shown, key=lambda one: one.leader_epoch, default=None)
        return None if latest is None else f"broker-{latest.leader_id}"

    def _expire(self, name: str) -> None:
        kind, number = _kind_and_number(name)
        session = _soon(lambda: self._session_of(kind, number))
        if session is None or not self._onlooker.expire(session):
            self._say(f"the session of {name} could not be closed")
        elif kind == "controller":
            self.expired_controllers += 1

    def _damage(self, name: str) -> None:
        cut = self._cluster.damage(name, PARTITIONS)
        self._say(f"cut in half: {', '.join(map(str, cut)) or 'nothing'}")

    def _session_of(self, kind: str, number: int) -> int | None:
        if kind == "controller":
            active = self._onlooker.active_controller()
            return active[1] if active is not None and active[0] == number else None
        sessions = {
            "broker": self._onlooker.broker_sessions,
            TXN_COORDINATOR: self._onlooker.coordinator_sessions,
            SHARE_COORDINATOR: self._onlooker.share_coordinator_sessions,
        }[kind]()
        return next((sessions[one] for one in sessions if one.startswith(f"{number}-")), None)


def _kind_and_number(name: str) -> tuple[str, int]:
    """``txn-coordinator-2`` is number 2 of its kind; ZooKeeper has no number."""
    kind, _, number = name.rpartition("-")
    return (kind, int(number)) if kind else (name, 0)


def _soon(ask: Callable[[], _T | None]) -> _T | None:
    """Ask until there is an answer: ZooKeeper may be back only now, an election under way."""
    deadline = time.monotonic() + _SOON_S
    while (answer := ask()) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return answer
