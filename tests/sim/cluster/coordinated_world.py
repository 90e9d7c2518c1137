"""A simulated cluster with coordinators: replicas of a service that owns shards of a state topic.

The state topic has two partitions, so that both replicas may own one.
"""

from functools import partial
from typing import Any, Final

from broker.shell.partitions.hosted import HostedPartition
from tidemark.runtime.shard_runtime import ShardRuntime

from sim.checkers import require
from sim.cluster.coordinator_process import CoordinatorProcess
from sim.cluster.parts import CoordinatorReplica, Machine, Options, SimTopic
from sim.cluster.state_ledger import StateLedger
from sim.cluster.world import World

LOOK_MS: Final = 50
COORDINATORS: Final = 2


class CoordinatedWorld(World):
    """One run. Subclasses say which process a coordinator is, and where its state is."""

    offsets_topic: SimTopic
    """State of groups."""

    def __init__(
        self, seed: int, options: Options, topics: list[SimTopic], *, kind: str, prefix: str
    ) -> None:
        """``kind``: of the coordinators' shards. ``prefix``: of their host names."""
        super().__init__(seed, options, topics, brokers=3)
        for one in self.topics:
            if isinstance(one.ledger, StateLedger):
                one.ledger.may_be_compacted = partial(self._is_rolled, one)
        self.coordinators += [
            CoordinatorReplica(number, self.network.host(f"{prefix}{number}"), kind)
            for number in range(1, COORDINATORS + 1)
        ]

    def _is_rolled(self, topic: SimTopic) -> bool:
        """Return True if a replica has a rolled segment, which its cleaner may have compacted."""
        tables = [
            one.process.broker.partitions.table for one in self.machines if one.process is not None
        ]
        hosted = [one for table in tables if (one := table.by_name.get(topic.place)) is not None]
        return any(len(one.log.segments()) > 1 for one in hosted)

    @property
    def state_topics(self) -> list[SimTopic]:
        """Return the partitions with the state of coordinators, those of groups included."""
        raise NotImplementedError

    def shards(self) -> set[tuple[str, int]]:
        """Return the shards that the coordinators own together, each with its kind."""
        raise NotImplementedError

    def make_coordinator(self, replica: CoordinatorReplica) -> CoordinatorProcess:
        """Return a new process."""
        raise NotImplementedError

    def _look_at_owners(self) -> None:
        """Check the owners of shards."""

    def _knows_owner(self, machine: Machine, hosted: HostedPartition, owner_epoch: int) -> None:
        """Check that the leader of a shard's log would refuse the owners before ``owner_epoch``."""
        partition, ledger = hosted.partition, self.topic_of(hosted).ledger
        is_deposed = partition.leader_epoch < ledger.state.leader_epoch
        known = partition.producers.owner_epoch
        require(
            is_deposed or max(known, 0) >= owner_epoch,
            "a leader knows the owner of its shard",
            f"{ledger.name}: broker {machine.number} knows {known}, the log has {owner_epoch}",
        )

    def _start_processes(self) -> None:
        super()._start_processes()
        for one in self.coordinators:
            self.after(self.dice.between(0, 30), lambda c=one: self.start_coordinator(c))  # type: ignore[misc]
        self.after(LOOK_MS, self._look_repeatedly)

    def _look_repeatedly(self) -> None:
        self._look_at_owners()
        if not self.is_over:
            self.after(LOOK_MS, self._look_repeatedly)

    def start_coordinator(self, replica: CoordinatorReplica) -> None:
        """Start a new process."""
        if replica.process is None:
            replica.process = self.make_coordinator(replica)
            replica.process.task.add_done_callback(self._on_ended)
            self.note(replica.host.name, "starts")

    def end_coordinator(self, replica: CoordinatorReplica) -> None:
        """End its process."""
        if replica.process is not None:
            replica.process.kill(self.network)
            replica.dead.append(replica.process)
            replica.process = None

    def _look_after_others(self) -> None:
        for replica in self.coordinators:
            process = replica.process
            if process is not None and process.task.done():
                failure = process.task.exception()
                if failure is not None:
                    raise failure
                self.note(replica.host.name, "ends: in order")
                self.end_coordinator(replica)
                self.after(100, lambda c=replica: self.start_coordinator(c))  # type: ignore[misc]

    def _heal(self) -> None:
        super()._heal()
        for replica in self.coordinators:
            if replica.host.is_paused:
                replica.host.resume()
            if replica.process is None:
                self.start_coordinator(replica)

    def _all_registered(self) -> bool:
        if not super()._all_registered():
            return False
        serving: set[tuple[str, int]] = set()
        for one in self.coordinators:
            if one.process is None or one.process.node.problem() is not None:
                return False
            serving |= {(one.kind, shard) for shard in one.process.node.shards.serving()}
        return serving == self.shards()


def is_busy(runtime: ShardRuntime[Any, Any, Any]) -> bool:
    """Return True if the shard has decisions that may not be committed yet."""
    return bool(runtime._in_flight or runtime._gathered)
