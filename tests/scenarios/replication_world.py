"""The world of tests/scenarios/replication: a simulated cluster with production's times, moved by
hand. docs/testing.md lists its commands.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.core.partition import Role
from controller.core.inputs import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ElectLeaders,
)
from scenarios.runner import Command
from sim.cluster.client import ALL, Client
from sim.cluster.near_reader import near_settings
from sim.cluster.parts import Machine, Options, Replica, SimTopic
from sim.cluster.processes import PRODUCTION
from sim.cluster.watching import log_of
from sim.cluster.world import World, make_topic
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode

SEED: Final = 18
TOPIC: Final = 2
SECOND_MS: Final = 1_000
PATIENCE_MS: Final = 60_000
ROUND_MS: Final = 500
KEEP_ALL: Final = (-1, *((-1, 0) * 500))
"""Dice for a crash: all names, and of each file all bytes, none of them torn."""


class ScriptClient(Client):
    """Goes where it is told, or to whoever leads by the newest metadata that can be reached."""

    target = ""
    answer_s = 45.0
    wait_ms = 30_000

    def _find_leader(self) -> str:
        if self.target:
            return self.target
        world, found = self.world, (-1, -1)
        for machine in world.machines:
            process = machine.process
            if process is None or ("client", machine.host.name) in world.network.cuts:
                continue
            topic = process.broker.metadata.image.topics_by_id.get(self.topic.topic_id)
            if topic is not None:
                state = topic.partitions[0]
                found = max(found, (int(state.leader_epoch), int(state.leader)))
        if found[1] < 0:
            raise ConnectionRefusedError("LEADER_NOT_AVAILABLE")
        self.leader_epoch = found[0]
        return f"b{found[1]}"


class ReplicationWorld:
    """Three brokers, one or two controllers, a ZooKeeper ensemble of three, topics of one
    partition each. Answers that come later are printed when they come.
    """

    def __init__(self) -> None:
        self._world: World | None = None
        self._written = 0
        self._acknowledged: dict[str, list[bytes]] = {}
        self._output: list[str] = []
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._fetches: int | None = None

    def execute(self, command: Command) -> list[str]:
        """Do one command; the lines it gave."""
        self._output = []
        act: Callable[[Command], None] | None = getattr(
            self, "do_" + command.verb.replace("-", "_"), None
        )
        assert act is not None, f"no command {command.verb}"
        act(command)
        return self._output

    def close(self) -> None:
        """End the processes."""
        if self._world is not None:
            self._world.close()

    @property
    def world(self) -> World:
        """Of the last ``cluster``."""
        assert self._world is not None, "say `cluster` first"
        return self._world

    # -- the cluster

    def do_cluster(self, command: Command) -> None:
        """``cluster topic=2,1,3 min=2 unclean=true lag=2s near=true``: name=replicas for each
        topic; ``near``: followers serve consumers.
        """
        self.close()
        self._acknowledged.clear()
        self._fetches = None
        configs = {
            "min.insync.replicas": command.options.get("min", "1"),
            "unclean.leader.election.enable": command.options.get("unclean", "false"),
            "flush": command.options.get("flush", "os"),
        }
        named = {key: value for key, value in command.options.items() if "," in value}
        topics = [
            make_topic(number, name, dict(configs), tuple(map(int, replicas.split(","))))
            for number, (name, replicas) in enumerate(named.items())
        ]
        for topic in topics:
            topic.may_lose = command.options.get("may_lose", "false") == "true"
        brokers = max(max(topic.replicas) for topic in topics)
        lag_ms = _milliseconds(command.options.get("lag", "10s"))
        options = Options(timing=PRODUCTION._replace(lag_ms=lag_ms))
        world = self._world = World(SEED, options, topics, brokers=max(brokers, 3))
        world.drawn_config = {}  # a script says what is rare
        is_near = command.options.get("near", "false") == "true"
        world.near_config = near_settings if is_near else None
        world.network.is_steady = True
        for machine in world.machines:
            machine.rate_permille = 1_000
            world.start_broker(machine)
        world.start_controller(world.controllers[0])
        self._pass(5 * SECOND_MS)
        world.start_controller(world.controllers[1])
        self._pass(2 * SECOND_MS)

    def _pass(self, length_ms: int) -> None:
        world = self.world
        world.pass_until(world.now + length_ms)

    def do_wait(self, command: Command) -> None:
        """``wait 10s``."""
        self._pass(_milliseconds(command.arguments[0]))

    # -- clients

    def do_produce(self, command: Command) -> None:
        """``produce 10 acks=all [topic=orders] [to=b2] [name=x]``: waits for the answer, unless it
        has a name: then it is printed by ``answer x``, or by ``answers``.
        """
        topic = self._topic(command)
        values = []
        for _ in range(int(command.arguments[0])):
            self._written += 1
            values.append(b"%d" % self._written)
            topic.ledger.sends(values[-1], once=False)
        acks = ALL if command.options.get("acks", "all") == "all" else 1
        client = ScriptClient(self.world, topic)
        client.target = command.options.get("to", "")
        name = command.options.get("name", "")
        work = self._produce(client, values, acks, name)
        if name:
            self._begin(name, work)
        else:
            self._finish(self._begin("now", work))

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._waiting[name] = self.world.client_loop.create_task(work, name=name)
        return task

    def _finish(self, task: "asyncio.Task[None]") -> None:
        world = self.world
        world.pass_until(world.now + PATIENCE_MS, task.done)
        if not task.done():
            self._output.append("no answer")
            task.cancel()
        elif task.exception() is not None:
            raise task.exception()  # type: ignore[misc]

    def do_answer(self, command: Command) -> None:
        """Wait for the answer of a named produce."""
        self._finish(self._waiting.pop(command.arguments[0]))

    async def _produce(self, client: Client, values: list[bytes], acks: int, name: str) -> None:
        world, began = self.world, self.world.now
        batch = build_batch([(world.wall_ms(), None, value, ()) for value in values])
        who = f"{name} " if name else ""
        word = "all" if acks == ALL else "1"
        try:
            result = await client.produce(batch, acks)
        except ConnectionRefusedError as refused:
            self._output.append(f"{who}acks={word} <- {refused}")
            return
        except (OSError, TimeoutError):
            self._output.append(f"{who}acks={word} <- nothing")
            return
        code, took = ErrorCode(result.error_code), _seconds(world.now - began)
        if code is not ErrorCode.NONE:
            self._output.append(f"{who}acks={word} <- {code.name}{took}")
            return
        last = result.base_offset + len(values) - 1
        self._acknowledged.setdefault(client.topic.name, []).extend(values)
        self._output.append(f"{who}acks={word} <- {result.base_offset}..{last}{took}")

    def do_read(self, command: Command) -> None:
        """What consumers can read, and how many acknowledged values the leader does not have."""
        topic = self._topic(command)
        leader = self._leader(topic)
        if leader is None or leader.process is None:
            self._output.append("read <- LEADER_NOT_AVAILABLE")
            return
        hosted = leader.process.broker.partitions.table.by_name[topic.name, 0]
        batches = log_of(hosted, 0, hosted.partition.log_end)
        there = {value for batch in batches for value in batch.values}
        acknowledged = self._acknowledged.get(topic.name, [])
        lost = sum(value not in there for value in acknowledged)
        committed = hosted.partition.high_watermark
        self._output.append(
            f"readable {committed} of {len(there)} on b{leader.number},"
            f" {lost} of {len(acknowledged)} acknowledged are lost"
        )

    def do_fetches(self, command: Command) -> None:
        """How many requests of followers the leader took since the last ``fetches``; the first one
        prints nothing.
        """
        leader = self._leader(self._topic(command))
        assert leader is not None
        assert leader.process is not None
        taken = leader.process.broker.counters.requests[ApiKey.FETCH]
        if self._fetches is not None:
            self._output.append(f"{taken - self._fetches} fetches of followers")
        self._fetches = taken

    # -- faults

    def do_kill(self, command: Command) -> None:
        """kill -9 of brokers and controllers."""
        world = self.world
        for name in command.arguments:
            if name.startswith("c"):
                world.end_controller(world.controllers[int(name[1:]) - 1])
            else:
                world.end_broker(self._machine(name))

    def do_power(self, command: Command) -> None:
        """Machines lose power: nothing that was not synced is there any more, or with ``keep=all``
        everything.
        """
        for name in command.arguments:
            machine = self._machine(name)
            self.world.end_broker(machine, is_silent=True)
            for disk in machine.disks:
                disk.crash(KEEP_ALL if command.options.get("keep") == "all" else ())
            machine.boots += 1
            machine.is_lossy = True

    def do_start(self, command: Command) -> None:
        """Processes come up again."""
        world = self.world
        for name in command.arguments:
            if name.startswith("c"):
                world.start_controller(world.controllers[int(name[1:]) - 1])
            else:
                world.start_broker(self._machine(name))

    def do_pause(self, command: Command) -> None:
        """SIGSTOP."""
        for name in command.arguments:
            self.world.network.hosts[name].pause()

    def do_resume(self, command: Command) -> None:
        """SIGCONT."""
        for name in command.arguments:
            self.world.network.hosts[name].resume()

    def do_cut(self, command: Command) -> None:
        """``cut b1 b2,b3,zk``: both ways; ``cut b1 b2 way=there``: what b1 sends is lost."""
        for source, target in self._ways(command):
            self.world.network.cut(source, target)

    def do_heal(self, command: Command) -> None:
        """As ``cut``; without arguments everything."""
        network = self.world.network
        if not command.arguments:
            network.heal_all()
        for source, target in self._ways(command):
            network.heal(source, target)

    def do_slow(self, command: Command) -> None:
        """``slow b3 4s``: what comes to it arrives so late."""
        name, late = command.arguments
        network = self.world.network
        network.joins_writes = True
        for machine in self.world.machines:
            network.late_ms[machine.host.name, name] = _milliseconds(late)

    def _ways(self, command: Command) -> list[tuple[str, str]]:
        if not command.arguments:
            return []
        first, second = (self._names(word) for word in command.arguments)
        ways = [(one, other) for one in first for other in second if one != other]
        if command.options.get("way") != "there":
            ways += [(other, one) for one, other in ways]
        return ways

    def _names(self, word: str) -> list[str]:
        world, names = self.world, []
        for one in word.split(","):
            if one == "zk":
                names += [server.name for server in world.zookeeper.servers]
            elif one == "brokers":
                names += [machine.host.name for machine in world.machines]
            elif one == "controllers":
                names += [replica.host.name for replica in world.controllers]
            else:
                names.append(one)
        return names

    def do_zookeeper(self, command: Command) -> None:
        """``zookeeper stop 2``: so many servers; ``zookeeper start``: all."""
        zookeeper = self.world.zookeeper
        if command.arguments[0] == "stop":
            for number in range(int(command.arguments[1])):
                zookeeper.stop_server(number)
        else:
            for number, server in enumerate(zookeeper.servers):
                if not server.is_up:
                    zookeeper.start_server(number)

    # -- the operator

    def do_elect(self, command: Command) -> None:
        """``elect preferred`` or ``elect unclean``."""
        is_preferred = command.arguments[0] == "preferred"
        self.world.ask_controller(lambda request: ElectLeaders(request, is_preferred, None))
        self._pass(5 * SECOND_MS)

    def do_config(self, command: Command) -> None:
        """``config min.insync.replicas=2``."""
        for topic in self.world.topics:
            changes = tuple(
                ConfigChange(key, ConfigOperation.SET, value)
                for key, value in command.options.items()
            )
            resource = ConfigResource(TOPIC, topic.name, changes)
            self.world.ask_controller(
                lambda request, resource=resource: AlterConfigs(request, (resource,))  # type: ignore[misc]
            )
        self._pass(SECOND_MS)

    # -- looking

    def do_state(self, command: Command) -> None:
        """What ZooKeeper holds of each topic, and what each replica takes itself for; a second
        later, when all that is on its way has arrived.
        """
        world = self.world
        self._pass(SECOND_MS)
        for topic in world.topics:
            state = topic.ledger.state
            leader = f"b{state.leader}" if state.leader >= 0 else "none"
            elr = f" elr {_members(state.elr)}" if state.elr else ""
            self._output.append(
                f"{topic.name} e{state.leader_epoch} leader {leader} isr {_members(state.isr)}{elr}"
            )
            if command.arguments != ("short",):
                self._output += [self._replica(machine, topic) for machine in world.machines]

    def _replica(self, machine: Machine, topic: SimTopic) -> str:
        process = machine.process
        if process is None:
            return f"  {machine.host.name} down"
        hosted = process.broker.partitions.table.by_name.get((topic.name, 0))
        if hosted is None:
            return f"  {machine.host.name} hosts nothing"
        one = hosted.partition
        session = "" if process.host.name in self._alive() else " no session"
        lease = " lease" if one.role is Role.LEADER and process.keeper.holds() else ""
        return (
            f"  {machine.host.name} {one.role.value} e{one.leader_epoch}"
            f" _{one.high_watermark}/_{one.log_end}{lease}{session}"
        )

    def _alive(self) -> set[str]:
        """Brokers with a live znode."""
        names = self.world.zookeeper.tree.children("/brokers/live")
        return {f"b{name.partition('-')[0]}" for name in names}

    def do_controllers(self, command: Command) -> None:
        """Who takes itself for the active one; with ``count`` only how many do."""
        words = [self._office(replica) for replica in self.world.controllers]
        if command.arguments == ("count",):
            self._output.append(f"{words.count('active')} active, {words.count('standby')} standby")
            return
        for replica, word in zip(self.world.controllers, words, strict=True):
            self._output.append(f"{replica.host.name} {word}")

    def _office(self, replica: Replica) -> str:
        process = replica.process
        if process is None:
            return "down"
        return "active" if process.node.is_active else "standby"

    # -- finding

    def _topic(self, command: Command) -> SimTopic:
        name = command.options.get("topic", self.world.topics[0].name)
        return next(one for one in self.world.topics if one.name == name)

    def _machine(self, name: str) -> Machine:
        return self.world.machines[int(name[1:]) - 1]

    def _leader(self, topic: SimTopic) -> Machine | None:
        leader = topic.ledger.state.leader
        return self.world.machines[leader - 1] if leader >= 1 else None


def _members(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(brokers))) or "-"


def _milliseconds(text: str) -> int:
    return int(text[:-2]) if text.endswith("ms") else int(float(text.rstrip("s")) * SECOND_MS)


def _seconds(took_ms: int) -> str:
    """Rounded, so that a script does not depend on milliseconds; nothing when it was at once."""
    rounded = (took_ms + ROUND_MS // 2) // ROUND_MS * ROUND_MS
    return f" after {rounded / SECOND_MS:g} s" if rounded else ""
