"""The simulator of a cluster: brokers, controllers, a ZooKeeper ensemble and clients; one clock,
one queue, one seed.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from broker.core.parked import Parked
from broker.shell.partitions.hosted import HostedPartition
from controller.core.inputs import Request, RequestHeader
from controller.shell import znodes
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import PartitionImage, TopicImage
from tidemark.runtime import zk_paths
from tidemark.runtime.service import ServiceError
from tidemark.runtime.zk_session import Create
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk

from sim.checkers import require
from sim.cluster.client import Producer, Reader
from sim.cluster.deleter import Deleter, has_deleters
from sim.cluster.ledger import Ledger, State
from sim.cluster.listening import SimServer
from sim.cluster.near_reader import NearReader, near_config
from sim.cluster.network import Host, Network
from sim.cluster.parts import (
    CoordinatorReplica,
    FatalWrite,
    Machine,
    Options,
    Replica,
    SimTopic,
)
from sim.cluster.processes import (
    WALL_START_MS,
    BrokerProcess,
    ControllerProcess,
    addresses,
    broker_config,
    new_loop,
)
from sim.cluster.rpc import Hosts, Serves
from sim.cluster.supervisor import Supervisor
from sim.cluster.watching import Watch, log_of
from sim.dice import Dice
from sim.history import Bounds
from sim.report import Line, Trace
from sim.zookeeper import SimZooKeeper

START_MS: Final = 1_000_000
LOOK_MS: Final = 100
RETRY_MS: Final = 200
"""Time until a supervisor restarts a process that could not start."""
TWO_DIRECTORIES: Final = 0.3
"""Share of the seeds in which brokers have two log directories."""
SMALL_SEGMENTS: Final = 0.3
"""Share of the seeds in which logs that are not compacted have many segments."""
SETTLE_MS: Final = 12_000
"""Longest time after healing until every partition has a leader and a full ISR."""
AT_ONCE_MAX: Final = 200_000
"""Bound on the events of one instant: beyond it some process retries without waiting."""


ROOM_DICE: Final = 1_000_003
CHECKPOINT_DICE: Final = 2_000_003
RIVAL_DICE: Final = 3_000_003
FEED_DICE: Final = 5_000_011
OLD_DISK_DICE: Final = 6_000_011
SUPERVISOR_DICE: Final = 7_000_003
GIVE_UP_DICE: Final = 8_000_009
DIRECTORY_DICE: Final = 9_000_011
"""Offsets of separate dice: their throws change nothing else of a seed."""
RIVALS: Final = 0.5
"""Share of the seeds in which a second process may take a broker id."""
SUPERVISORS: Final = 0.6
"""Share of the seeds in which brokers run under supervisors."""
LATE_FEEDS: Final = 0.4
"""Share of the seeds in which messages of controllers may be late."""
OLD_DISKS: Final = 0.3
"""Share of the seeds in which an old disk may be put back."""
GIVEN_UP: Final = 0.3
"""Share of the seeds in which a broker may be unregistered."""
MOVE_RATES: Final = (2**63 - 1, 30_000, 100_000)
"""Rates of moves between log directories: with a low one, much happens during a move."""
DIRECTORY_MOVES: Final = 0.6
"""Share of the seeds with two log directories in which replicas move between them."""
RARE_CHECKPOINTS: Final = 0.3
"""Share of the seeds with hardly any checkpoint of high watermarks: a restart has few."""


def draw_room(dice: Dice) -> dict[str, int]:
    """Return bounds on the requests waiting at a broker: mostly sufficient, sometimes tiny."""
    if dice.chance(0.7):
        return {}
    return {
        "parked_requests_max": dice.between(1, 2),
        "parked_followers_max": dice.pick((1, 2, 1_024)),
        "parked_writes_max": dice.between(1, 2),
    }


def draw_checkpoints(dice: Dice) -> dict[str, int]:
    """Return the interval of checkpoints of high watermarks: as usual, or once per life at most."""
    if not dice.chance(RARE_CHECKPOINTS):
        return {}
    return {"log_flush_offset_checkpoint_interval_ms": 30_000}


def draw_topics(dice: Dice) -> list[SimTopic]:
    """Return one or two topics of three replicas."""
    topics = []
    for number in range(dice.between(1, 2)):
        start = dice.between(0, 2)
        replicas = (1, 2, 3, 1, 2)[start : start + 3]
        configs = {"min.insync.replicas": "2", "flush": dice.pick(("os", "os", "group"))}
        topics.append(make_topic(number, ("orders", "prices")[number], configs, replicas))
    return topics


def make_topic(
    number: int, name: str, configs: dict[str, str], replicas: tuple[int, ...]
) -> SimTopic:
    """Return a topic; its id is its number."""
    topic_id = TopicId((number + 1).to_bytes(16, "big"))
    return SimTopic(name, topic_id, configs, replicas, Ledger(f"{name}-0"))


def _topic_ops(of_topic: list[SimTopic]) -> list[Create]:
    """Return the creation of one topic's znodes, given all its partitions in order."""
    first, partitions = of_topic[0], []
    ops = [Create(zk_paths.partitions_of(first.topic_id), b"")]
    for one in of_topic:
        brokers = tuple(map(BrokerId, one.replicas))
        partition = PartitionImage(
            one.partition, brokers, brokers, brokers[0], LeaderEpoch(0), PartitionEpoch(0)
        )
        path = zk_paths.partition(one.topic_id, one.partition)
        ops.append(Create(path, znodes.write_partition(partition)))
        partitions.append(partition)
    image = TopicImage(first.name, first.topic_id, first.configs, tuple(partitions))
    ops.append(Create(zk_paths.topic(first.name), znodes.write_topic(image)))
    return ops


class World:
    """One run. ``run`` returns if all invariants held, and raises for the first that did not."""

    broker_config = staticmethod(broker_config)
    group_configs: Mapping[str, Mapping[str, str]] = {}
    """Dynamic configuration by group."""
    fault_paces_ms: Sequence[int] = (150, 300, 600)
    """Mean times between faults, of which a seed draws one."""

    def __init__(
        self,
        seed: int,
        options: Options,
        topics: list[SimTopic] | None = None,
        *,
        brokers: int = 0,
    ) -> None:
        """``brokers`` 0: a number drawn by the dice."""
        from sim.cluster.directory_moves import DIRECTORY_FAULTS
        from sim.cluster.disk_faults import DISK_FAULTS, process_ended
        from sim.cluster.faults import FAULTS, FEED_FAULTS, OLD_DISK_FAULTS, Injector
        from sim.cluster.fleeting import FLEETING_FAULTS
        from sim.cluster.lost_ends import LOSS_FAULTS
        from sim.cluster.rivals import RIVAL_FAULTS
        from sim.cluster.unregistering import GIVE_UP_FAULTS

        self.dice = Dice(seed)
        self.has_supervisors = Dice(SUPERVISOR_DICE + seed).chance(SUPERVISORS)
        """True if a process waits for the end of each broker, and records it."""
        self.drawn_config = draw_room(Dice(ROOM_DICE + seed)) | draw_checkpoints(
            Dice(CHECKPOINT_DICE + seed)
        )
        rate = Dice(DIRECTORY_DICE - seed).pick(MOVE_RATES)
        self.move_config = {"replica_alter_log_dirs_io_max_bytes_per_second": rate}
        self.has_deleters = has_deleters(seed, always=options.records_are_deleted)
        """True if a client deletes records."""
        self.near_config = near_config(seed, always=options.followers_serve)
        self.parked: list[Parked] = []
        """Parked requests of every broker ever started."""
        self.options = options
        self.length_ms = options.length_ms
        """Time under faults."""
        self.well_ms = options.timing.lag_ms * 3 // 2
        """Time for which the healed cluster must be in order: no lag can stay unnoticed."""
        self.trace = Trace(is_full=options.is_full)
        self.now = START_MS
        self.acknowledged = 0
        self._has_ended = False
        self.is_draining = False
        self.is_over = False
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._events = 0
        self.network = Network(self, self.dice, keepalive_ms=options.timing.keepalive_ms)
        self.zookeeper = SimZooKeeper(
            self, self.dice, link=self.network.zookeeper_link, tick_ms=100
        )
        self.watch = Watch(self)
        self.zookeeper.on_commit = self.watch.on_commit
        self.failures = self.network.failures
        """Bugs that processes survive, the first of which ends the run. See Network."""
        self.client = self.network.host("client")
        self.client.begin()
        self.client_loop = new_loop(self.client, self.dice)
        count_of = brokers or options.brokers or (4 if self.dice.chance(0.25) else 3)
        self.directories = 2 if Dice(-seed - 1).chance(TWO_DIRECTORIES) else 1
        """Log directories of each broker."""
        self.machines = [self._machine(number) for number in range(1, count_of + 1)]
        self.controllers = [
            Replica(number, self.network.host(f"c{number}")) for number in range(1, 3)
        ]
        self.ghosts: list[Machine] = []
        """Processes whose broker id another process has taken over, on another machine."""
        self.coordinators: list[CoordinatorReplica] = []
        self.topics = draw_topics(self.dice) if topics is None else topics
        self.fleeting: list[SimTopic] = []
        """Every topic requested during the run. See sim.cluster.fleeting."""
        self.by_path = {zk_paths.partition(one.topic_id, one.partition): one for one in self.topics}
        if Dice(-seed - 2).chance(SMALL_SEGMENTS):
            for topic in (one for one in self.topics if "cleanup.policy" not in one.configs):
                topic.configs |= {"segment.index.bytes": "24", "index.interval.bytes": "1024"}
        self._lay_out()
        asked = options.faults
        self.alters_minimum = self.dice.chance(0.4) if asked is None else "alter_minimum" in asked
        self.fault_table = {**FAULTS, **DISK_FAULTS, **self._faults_of_its_own()}
        self.faults_apart = {
            **RIVAL_FAULTS,
            **FEED_FAULTS,
            **OLD_DISK_FAULTS,
            **FLEETING_FAULTS,
            **LOSS_FAULTS,
            **GIVE_UP_FAULTS,
            **DIRECTORY_FAULTS,
        }
        self.drawn_apart = self._draw_apart(seed)
        self.injector = Injector(self)
        self._lose_dropped: Callable[[Machine], None] = lambda machine: process_ended(self, machine)
        self._fatal_write: FatalWrite | None = None

    @property
    def by_name_only(self) -> frozenset[str]:
        """Faults that are injected only if they are named."""
        return frozenset()

    def _faults_of_its_own(self) -> Mapping[str, tuple[Callable[[Any], None], int]]:
        """Faults in addition to those of every cluster."""
        return {}

    def _draw_apart(self, seed: int) -> list[str]:
        """Return the faults of ``faults_apart`` that this seed has, drawn by dice of their own."""
        drawn = ["rival"] if Dice(RIVAL_DICE + seed).chance(RIVALS) else []
        drawn += ["give_up"] if Dice(GIVE_UP_DICE + seed).chance(GIVEN_UP) else []
        drawn += ["delay_feed"] if Dice(FEED_DICE + seed).chance(LATE_FEEDS) else []
        if self.directories > 1 and Dice(DIRECTORY_DICE + seed).chance(DIRECTORY_MOVES):
            drawn.append("move_directory")
        return drawn + (["put_back"] if Dice(OLD_DISK_DICE + seed).chance(OLD_DISKS) else [])

    def _machine(self, number: int) -> Machine:
        rate = self.dice.pick((960, 1_000, 1_040))
        ids = [f"dir-{number}-{at}" for at in range(self.directories)]
        disks = [MemDisk() for _ in ids]
        return Machine(number, self.network.host(f"b{number}"), disks, ids, rate)

    def _lay_out(self) -> None:
        """Write ZooKeeper's content as after an orderly stop of a cluster with these topics."""
        paths: dict[str, None] = {}
        for parent in zk_paths.PERSISTENT_PARENTS:
            names = parent.split("/")[1:]
            paths.update(("/" + "/".join(names[: n + 1]), None) for n in range(len(names)))
        ops = [Create(path, b"") for path in paths]
        ops.append(Create(zk_paths.CLUSTER, zk_paths.encode({"cluster_id": "sim", "features": {}})))
        for group, configs in self.group_configs.items():
            ops.append(Create(zk_paths.group_configs(group), zk_paths.encode({"configs": configs})))
        by_name: dict[str, list[SimTopic]] = {}
        for topic in self.topics:
            by_name.setdefault(topic.name, []).append(topic)
        for of_topic in by_name.values():
            ops += _topic_ops(of_topic)
        self.zookeeper.write(self.zookeeper.servers[0], 0, tuple(ops))

    # -- the clock

    @property
    def scheduled(self) -> int:
        """Number of events until now."""
        return self._events

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call ``action`` after a delay."""
        self._events += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._events, action))

    def wall_ms(self) -> int:
        """Return the time for records."""
        return WALL_START_MS + self.now

    def pass_until(self, end: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; return True if it was ``done`` before ``end``."""
        queue, at_once = self._queue, 0
        while queue and queue[0][0] <= end:
            before = self.now
            self.now, _, action = heapq.heappop(queue)
            at_once = at_once + 1 if self.now == before else 0
            assert at_once < AT_ONCE_MAX, f"time stands still at {self.now}: somebody never waits"
            action()
            if self.failures:
                raise self.failures[0]
            if self._has_ended:
                self._look_after()
            self.watch.check()
            if done():
                return True
        self.now = max(self.now, end)
        return False

    def close(self) -> None:
        """End everything that still runs."""
        brokers = [one for machine in self.brokers for one in (*machine.dead, machine.process)]
        controllers = [one for each in self.controllers for one in (*each.dead, each.process)]
        coordinators = [one for each in self.coordinators for one in (*each.dead, each.process)]
        for process in (*brokers, *controllers, *coordinators):
            if process is not None:
                process.loop.shut()
        self.client_loop.shut()

    def run(self) -> None:
        """Start, work under faults, heal, settle, compare."""
        self._start_processes()
        self.pass_until(self.now + 4_000, self._all_registered)
        tasks = self._start_clients()
        self.injector.start()
        self.pass_until(self.now + self.length_ms)
        self.injector.stop()
        self.note("operator", "heals all")
        self._heal()
        self.is_draining = True
        self._end_work()
        self.is_over = True
        self.pass_until(self.now + 3_000, lambda: all(one.done() for one in tasks))
        for task in tasks:
            require(task.done(), "after healing clients finish", task.get_name())
            task.result()
        self._compare()

    def _start_processes(self) -> None:
        for machine in self.machines:
            self.after(self.dice.between(0, 30), lambda m=machine: self.start_broker(m))  # type: ignore[misc]
        for replica in self.controllers:
            self.after(self.dice.between(0, 30), lambda r=replica: self.start_controller(r))  # type: ignore[misc]

    def _start_clients(self) -> "list[asyncio.Task[None]]":
        tasks = []
        for number in range(1, self.dice.between(2, 3) + 1):
            producer = Producer(self, self.dice.pick(self.topics), number)
            tasks.append(self._client_task(producer.run(lambda: self.is_draining), producer.name))
        for number, topic in enumerate(self.topics, 1):
            reader = Reader(self, topic, number)
            tasks.append(self._client_task(reader.run(lambda: self.is_over), reader.name))
        for number, topic in enumerate(self.topics, 1):
            if self.near_config is not None:
                near = NearReader(self, topic, number)
                tasks.append(self._client_task(near.run(lambda: self.is_over), near.name))
        for number, topic in enumerate(self.topics, 1):
            if self.has_deleters:
                deleter = Deleter(self, topic, number)
                tasks.append(self._client_task(deleter.run(lambda: self.is_draining), deleter.name))
        return tasks

    def _client_task(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = self.client_loop.create_task(work, name=name)
        task.add_done_callback(self._client_done)
        return task

    def _client_done(self, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            raise failure

    # -- processes

    def controller_at(self, endpoint: str) -> Host:
        """See Directory."""
        return self.network.hosts[endpoint.partition(":")[0]]

    def serving_on(self, host: Host) -> Serves | None:
        """See Directory."""
        return next((one.process for one in self.controllers if one.host is host), None)

    def hosting_on(self, host: Host) -> Hosts | None:
        """See Directory."""
        machines: list[Machine | CoordinatorReplica] = [
            *self.brokers,
            *self.coordinators,
        ]
        return next((one.process for one in machines if one.host is host), None)

    @property
    def brokers(self) -> list[Machine]:
        """Return every machine on which a broker may run, those with a lost broker id included."""
        return [*self.machines, *self.ghosts]

    @property
    def members(self) -> list[Machine | Replica | CoordinatorReplica]:
        """Return every machine except ZooKeeper's and the clients'."""
        return [*self.machines, *self.controllers, *self.coordinators]

    def broker_at(self, name: str) -> SimServer | None:
        """Return the listener there."""
        processes = (one.process for one in self.brokers if one.host.name == name)
        server = next((one.server for one in processes if one is not None), None)
        return server if server is not None and server.is_serving else None

    def start_broker(self, machine: Machine) -> None:
        """Start on the disk as it is."""
        if machine.process is not None:
            return
        machine.restart_planned = False
        machine.began_at = self.now
        machine.seen.clear()
        try:
            machine.process = BrokerProcess(
                machine.host,
                self,
                self.zookeeper,
                machine.disks,
                self.broker_config(machine.number, self.options.timing).model_copy(
                    update=self._updates(machine)
                ),
                memory=machine.memory,
                dice=self.dice,
                boot_id=f"boot-{machine.number}-{machine.boots}",
                directory_ids=machine.directory_ids,
                rate_permille=machine.rate_permille,
                servers=self.broker_at,
            )
        except DiskError as failure:
            self.note(machine.host.name, f"does not start: {failure}")
            self.restart_later(machine, RETRY_MS)
            return
        self.watch.begins(machine)
        self.parked.append(machine.process.broker.partitions.parked.requests)
        machine.process.task.add_done_callback(self._on_ended)
        self.note(machine.host.name, "starts")

    def _updates(self, machine: Machine) -> dict[str, Any]:
        """Return the settings of one broker in addition to those of all."""
        near = {} if self.near_config is None else self.near_config(machine.number)
        names = {"log_dirs": tuple(f"/disk-{at}" for at in range(len(machine.disks)))}
        return self.drawn_config | near | names | self.move_config | addresses(machine.host.name)

    def start_controller(self, replica: Replica) -> None:
        """Start a new process."""
        if replica.process is None:
            replica.process = ControllerProcess(
                replica.host, self.zookeeper, self.dice, replica.number, self.options.timing
            )
            replica.process.task.add_done_callback(self._on_ended)
            self.note(replica.host.name, "starts")

    def _on_ended(self, _task: object) -> None:
        self._has_ended = True

    def end_broker(self, machine: Machine, *, is_silent: bool = False) -> None:
        """End its process."""
        process = machine.process
        if process is None:
            return
        process.kill(self.network, is_silent=is_silent)
        machine.dead.append(process)
        machine.process = None
        if is_silent:
            for supervisor in machine.supervisors:
                supervisor.kill()
        elif self.has_supervisors:
            machine.supervisors.append(Supervisor(self, machine.host, process))
        for disk in machine.disks:
            disk.kill()
        if machine.is_hurt:
            self._lose_dropped(machine)

    def end_controller(self, replica: Replica) -> None:
        """End its process."""
        if replica.process is not None:
            replica.process.kill(self.network)
            replica.dead.append(replica.process)
            replica.process = None

    def kill_who_writes(self, fatal: FatalWrite) -> None:
        """Kill the controller that makes this write, before it gets the response."""
        self._fatal_write = fatal

    def controller_wrote(self, host: str) -> None:
        """Note a committed transaction of a controller."""
        fatal = self._fatal_write
        if fatal is None or not fatal.is_this(self.now):
            return
        self._fatal_write = None
        replica = next(one for one in self.controllers if one.host.name == host)
        self.after(0, lambda: self.kill_controller(replica, "dies between two writes"))

    def kill_controller(self, replica: Replica, what: str) -> None:
        """Kill a controller (kill -9); it restarts."""
        if replica.process is None:
            return
        self.note(replica.host.name, what)
        self.end_controller(replica)
        self.after(self.dice.pick((20, 300, 1_500)), lambda: self.start_controller(replica))

    def restart_later(self, machine: Machine, delay_ms: int) -> None:
        """Restart as a supervisor does."""
        machine.restart_planned = True
        self.after(delay_ms, lambda: self.start_broker(machine))

    def ask_controller(self, make: Callable[[RequestHeader], Request]) -> None:
        """Send an operator's request to the active controller, without waiting for the response."""
        for replica in self.controllers:
            process = replica.process
            if process is None or not process.node.is_active or replica.host.is_paused:
                continue

            async def ask(process: ControllerProcess = process) -> None:
                await process.node.ask(make, 1_000)

            process.loop.create_task(ask())

    def _look_after(self) -> None:
        """Restart processes that ended by themselves, as their supervisor does."""
        self._has_ended = False
        for machine in self.brokers:
            process = machine.process
            if process is None or not process.task.done():
                continue
            failure = process.task.exception() if not process.task.cancelled() else None
            if failure is not None and not _is_service_error(failure):
                raise failure
            self.note(machine.host.name, f"ends: {failure or 'in order'}")
            self.end_broker(machine)
            if machine in self.machines:
                self.restart_later(machine, self.dice.between(20, 400))
        for replica in self.controllers:
            controller = replica.process
            if controller is not None and controller.task.done():
                failure = controller.task.exception()
                raise failure or AssertionError("a controller ended by itself")
        self._look_after_others()

    def _look_after_others(self) -> None:
        """Restart other processes with a supervisor."""

    def topic_of(self, hosted: HostedPartition) -> SimTopic:
        """Return the topic by its id."""
        partition = hosted.topic_partition.partition
        return next(
            one
            for one in (*self.topics, *self.fleeting)
            if one.topic_id == hosted.topic_id and one.partition == partition
        )

    def living_topics(self) -> list[SimTopic]:
        """Every partition of every topic that exists."""
        from sim.cluster.fleeting import living

        fleeting = living(self)
        return self.topics if fleeting is None else [*self.topics, fleeting]

    def on_appended(self, topic: SimTopic, hosted: HostedPartition, start: int) -> None:
        """Handle a leader's append from ``start`` on."""

    def on_stored(self, topic: SimTopic, before: State) -> None:
        """Handle a state of a partition that ZooKeeper has now."""

    def on_led(self, machine: Machine, hosted: HostedPartition) -> None:
        """Handle a change of a leader's log, watermark or epoch."""

    def on_committed(self, topic: SimTopic, hosted: HostedPartition, start: int) -> None:
        """Handle a leader's high watermark that has passed ``start``."""

    def _heal(self) -> None:
        self.network.heal_all()
        for number, server in enumerate(self.zookeeper.servers):
            self.zookeeper.lag(number, 0)
            if not server.is_up:
                self.zookeeper.start_server(number)
        for ghost in self.ghosts:
            self.end_broker(ghost)
        for machine in self.machines:
            self._heal_broker(machine)
        for replica in self.controllers:
            if replica.host.is_paused:
                replica.host.resume()
            if replica.process is None:
                self.start_controller(replica)

    def _heal_broker(self, machine: Machine) -> None:
        """Restart a process that has taken a directory out of service."""
        for disk in machine.disks:
            disk.exhausted = False
            disk.unbound()
            disk.repair()
        if machine.host.is_paused:
            machine.host.resume()
        if machine.has_fenced:
            self.end_broker(machine)
        if machine.process is None and not machine.restart_planned:
            self.start_broker(machine)

    def _all_registered(self) -> bool:
        return all(
            one.process is not None
            and one.process.has_joined
            and not one.process.is_stopping.is_set()
            for one in self.machines
        )

    # -- the end

    def _end_work(self) -> None:
        """Wait until the cluster is in order, and clients have finished their work."""
        self._settle()
        self._drain()

    def _settle(self) -> None:
        """Wait until the cluster is in order for ``well_ms``."""
        deadline, well_ms = self.now + SETTLE_MS, 0
        while self.now < deadline and well_ms <= self.well_ms:
            self.pass_until(self.now + LOOK_MS)
            well_ms = well_ms + LOOK_MS if self._is_settled() else 0
        require(self._all_registered(), "after healing every broker is registered")
        for topic in self.topics:
            require(not topic.is_moving, "after healing moves end", topic.name)
            topic.ledger.settles(topic.replicas)
        for machine in self.machines:
            rotten = self.is_rotten(machine)
            require(not rotten, "after healing damage is repaired", str(machine.rotten))

    def _drain(self) -> None:
        """Let clients finish their work."""

    def _is_settled(self) -> bool:
        return (
            self._all_registered()
            and all(map(self._is_whole, self.living_topics()))
            and not any(map(self.is_rotten, self.machines))
        )

    def is_rotten(self, machine: Machine) -> bool:
        """Return True if damage in the machine's files still exists."""
        from sim.cluster.disk_faults import is_rotten, roll_rotten

        rotten = [one for one in machine.rotten if one[0] in machine.disks and is_rotten(*one)]
        machine.rotten = rotten
        if self.is_draining:
            roll_rotten(machine)
        return bool(rotten)

    def _is_whole(self, topic: SimTopic) -> bool:
        """Return True if every replica is in sync, acts accordingly, and has the same log."""
        state = topic.ledger.state
        if state.leader < 0 or topic.is_moving or set(state.isr) != set(topic.replicas):
            return False
        ends = set()
        for machine in self._hosting(topic):
            assert machine.process is not None
            hosted = machine.process.broker.partitions.table.by_name.get(topic.place)
            if hosted is None or hosted.partition.leader_epoch != state.leader_epoch:
                return False
            ends |= {hosted.partition.log_end, hosted.partition.high_watermark}
        return len(ends) == 1

    def _hosting(self, topic: SimTopic) -> list[Machine]:
        return [one for one in self.machines if one.number in topic.replicas]

    def _compare(self) -> None:
        for topic in self.topics:
            logs, log_start = {}, 0
            for machine in self._hosting(topic):
                assert machine.process is not None
                hosted = machine.process.broker.partitions.table.by_name[topic.place]
                partition = hosted.partition
                logs[machine.number] = log_of(hosted, 0, partition.log_end)
                if topic.ledger.delete_asked:
                    topic.ledger.begins(machine.number, partition.leader_epoch, partition.log_start)
                    log_start = max(log_start, partition.log_start)
            topic.ledger.ends(logs, log_start=log_start)

    # -- the report

    def note(self, actor: str, what: str, topic: SimTopic | None = None) -> None:
        """Add one line to the trace."""
        bounds, role, epoch = None, "", -1
        if topic is not None:
            state = topic.ledger.state
            role, epoch = (f"b{state.leader}" if state.leader >= 0 else "-"), state.leader_epoch
            bounds = Bounds(0, topic.ledger.end, topic.ledger.end, topic.ledger.end, 0)
        name = "" if topic is None else topic.title
        self.trace.add(Line(self.now - START_MS, actor, what, name, role, epoch, bounds))


def _is_service_error(failure: BaseException) -> bool:
    if isinstance(failure, BaseExceptionGroup):
        return all(_is_service_error(one) for one in failure.exceptions)
    if isinstance(failure, TidemarkError):
        return failure.code is ErrorCode.REQUEST_TIMED_OUT
    return isinstance(failure, ServiceError | DiskError)
