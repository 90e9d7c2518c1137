"""DevCluster: an embedded cluster of real processes on loopback, for development and tests."""

import fcntl
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.cli.dev.health import member_problem, metadata_problem
from tidemark.cli.dev.layout import (
    COORDINATORS,
    HOST,
    PROMETHEUS,
    Layout,
    Member,
    module_of,
    port_is_free,
)
from tidemark.cli.dev.process import (
    ProcessFile,
    port_owner,
    send_signal,
    start_detached,
    start_supervised,
    wait_ended,
)
from tidemark.cli.dev.prometheus import find_prometheus, prometheus_argv
from tidemark.cli.dev.secure import SecureFiles, keys_of, prepare
from tidemark.cli.dev.zookeeper import zookeeper_argv
from tidemark.cli.failure import CommandError
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
KILL_SECONDS: Final = 300.0
"""A process that waits for a disk ends only after that."""
_POLL_SECONDS: Final = 0.05
_LOG_LINES_SHOWN: Final = 12
_START_ORDER: Final = ("zookeeper", "controller", "broker", *COORDINATORS, PROMETHEUS)
_UNSUPERVISED: Final = ("zookeeper", PROMETHEUS)
_SUPERVISOR: Final = "tidemark.runtime.supervisor"

Config = Mapping[str, object]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Current state of one process. ``problem`` is None if it is ready."""

    name: str
    running: bool
    problem: str | None
    pid: int | None
    ports: Mapping[str, int]
    uptime_ms: int | None
    log_path: str

    @property
    def health(self) -> str:
        """Word for a table: stopped, crashed, not ready or healthy."""
        if self.running:
            return "healthy" if self.problem is None else "not ready"
        return "stopped" if self.pid is None else "crashed"


class DevCluster:
    """A cluster to start, inspect, break and stop. Blocking; a lock admits one command at a time.

    ``overrides`` adds configuration keys for one process by name (``broker-1``) or for all of a
    kind (``broker``, ``controller``, ``txn-coordinator``, ``share-coordinator``). All processes
    start with ``environment``. They outlive this object, which finds them again by the files under
    ``layout.run_directory``.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        overrides: Mapping[str, Config] | None = None,
        environment: Mapping[str, str] = os.environ,
        report: Report = lambda _: None,
    ) -> None:
        self.layout = layout
        self._environment = environment
        self._overrides = {name: dict(keys) for name, keys in (overrides or {}).items()}
        self._report = report
        self._clock = Clock()
        self._log_positions: dict[str, int] = {}

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` of the brokers' Kafka listeners."""
        return self.layout.bootstrap

    # -- the whole cluster

    def start(self, timeout_seconds: float = START_SECONDS) -> list[str]:
        """Start all processes that are not running, and wait until all are healthy. Return the
        names of the started ones, [] if none.

        Raises CommandError if a requirement is missing, a port is taken, or a process ended or did
        not become ready in time.
        """
        deadline = self._clock.now_ms() + int(timeout_seconds * 1_000)
        self.layout.run_directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            members = self.layout.members()
            missing = [member for member in members if self._running(member.name) is None]
            self._check_ports(missing)
            self._check_installed({member.kind for member in missing})
            if self.layout.shape.is_secure:
                prepare(self.layout)
            self.layout.shape.write(self.layout.shape_path)
            for kind in _START_ORDER:
                starting = [member for member in missing if member.kind == kind]
                for member in starting:
                    self._report(f"starting {member.name}")
                    self._spawn(member)
                if kind == "zookeeper":
                    self._wait_ready(
                        [member for member in members if member.kind == kind], deadline
                    )
            if missing:
                self._report("waiting until all processes are ready")
            self._wait_ready(members, deadline)
            if self.layout.shape.is_secure:
                from tidemark.cli.dev.grants import maybe_grant

                maybe_grant(self.layout, deadline)
        return [member.name for member in missing]

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> list[str]:
        """Stop coordinators, brokers, controllers, then ZooKeeper. Return the names of processes
        that had to be killed.
        """
        killed: list[str] = []
        if not self.layout.run_directory.exists():
            return killed
        with self._locked():
            for kind in reversed(_START_ORDER):
                names = [member.name for member in self.layout.members() if member.kind == kind]
                killed += self._stop_together(names, timeout_seconds)
        return killed

    def status(self) -> list[MemberStatus]:
        """Return the state of every process, in the order in which they start."""
        return [self._status(member) for member in self.layout.members()]

    def running(self) -> list[str]:
        """Return the names of the running processes."""
        names = [member.name for member in self.layout.members()]
        return [name for name in names if self._running(name) is not None]

    # -- one process

    def pid(self, name: str) -> int:
        """Return the process id of a service, not of its supervisor. Raises CommandError if it does
        not run.
        """
        process = self._running(self.layout.member(name).name)
        if process is None:
            raise CommandError(f"{name} is not running", hint="tidemark dev up starts it")
        return process.pid

    def configure(self, name: str, keys: Config) -> None:
        """Add configuration keys for one process or kind, from its next start on."""
        self._overrides.setdefault(name, {}).update(keys)

    def kill(self, name: str) -> None:
        """Send SIGKILL and wait for the end, if the process runs. Its supervisor records the end,
        and ends.
        """
        process = self._running(self.layout.member(name).name)
        if process is not None:
            self._kill(process)

    def cut_power(self, name: str) -> None:
        """Kill a process and its supervisor, which records nothing: as its machine's end would."""
        name = self.layout.member(name).name
        for process in (self._supervisor(name), self._running(name)):
            if process is not None:
                self._kill(process)

    def terminate(self, name: str, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Send SIGTERM and wait; return False if the process had to be killed."""
        return not self._stop_together([self.layout.member(name).name], timeout_seconds)

    def restart(self, name: str, timeout_seconds: float = START_SECONDS) -> None:
        """Restart a process and wait until it is ready; stop it first if it is running."""
        member = self.layout.member(name)
        deadline = self._clock.now_ms() + int(timeout_seconds * 1_000)
        self._stop_together([name], timeout_seconds)
        self._check_ports([member])
        self._spawn(member)
        self._wait_ready([member], deadline)

    def wait_healthy(self, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until every process is ready and every broker's metadata has all brokers. Raises
        CommandError.
        """
        deadline = self._clock.now_ms() + int(timeout_seconds * 1_000)
        self._wait_ready(self.layout.members(), deadline)

    # -- internals

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock: two commands at once would start everything twice."""
        path = self.layout.run_directory / "lock"
        with path.open("w", encoding="ascii") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandError(
                    f"another command is running in {self.layout.directory}",
                    hint="wait until it ends, then try again",
                    code=ExitCode.TEMPORARY,
                ) from None
            yield

    def _known(self, name: str) -> ProcessFile | None:
        return ProcessFile.read(self.layout.run_directory / f"{name}.pid.json")

    def _running(self, name: str) -> ProcessFile | None:
        process = self._known(name)
        return process if process is not None and process.running() else None

    def _supervisor(self, name: str) -> ProcessFile | None:
        """Return the supervisor if it runs. It may outlive its service while it records the end."""
        process = ProcessFile.read(self._supervisor_path(name))
        return process if process is not None and process.running() else None

    def _supervisor_path(self, name: str) -> Path:
        return self.layout.run_directory / f"{name}.supervisor.json"

    def _spawn(self, member: Member) -> None:
        log_path = self.layout.log_path(member.name)
        argv = self._argv(member)
        self._log_positions[member.name] = log_path.stat().st_size if log_path.exists() else 0
        supervisor_path = self._supervisor_path(member.name)
        supervisor_path.unlink(missing_ok=True)
        try:
            if self.layout.shape.has_supervisors and member.kind not in _UNSUPERVISED:
                argv = [*argv[:3], _SUPERVISOR, *argv[3:]]
                supervisor, process = start_supervised(
                    argv, log_path=log_path, env=self._environment
                )
                supervisor.write(supervisor_path)
            else:
                process = start_detached(argv, log_path=log_path, env=self._environment)
        except OSError as error:
            raise CommandError(
                f"cannot run {argv[0]} for {member.name}: {error.strerror}",
                code=ExitCode.UNAVAILABLE,
            ) from None
        process.write(self.layout.run_directory / f"{member.name}.pid.json")

    def _argv(self, member: Member) -> list[str]:
        if member.kind == "zookeeper":
            return zookeeper_argv(self.layout)
        if member.kind == PROMETHEUS:
            return prometheus_argv(self.layout, member)
        if member.kind not in COORDINATORS:
            self.layout.data_path(member.name).mkdir(parents=True, exist_ok=True)
        path = self.layout.run_directory / f"{member.name}.yaml"
        # JSON is YAML, and quotes every value as it must be.
        path.write_text(json.dumps(self._config(member), indent=2) + "\n", encoding="utf-8")
        return [sys.executable, "-P", "-m", member.module, "--config", str(path)]

    def _config(self, member: Member) -> dict[str, object]:
        ports = member.ports
        # A coordinator's id is unique among coordinators of its kind.
        id_key = "coordinator.id" if member.kind in COORDINATORS else f"{member.kind}.id"
        common: dict[str, object] = {
            id_key: member.number,
            "zookeeper.connect": self.layout.zookeeper_connect,
            "grpc.listen": f"{HOST}:{ports['grpc']}",
        }
        if member.kind == "controller":
            common["rest.listen"] = f"{HOST}:{ports['rest']}"
            common["default.replication.factor"] = min(3, self.layout.shape.brokers)
        else:
            common["ops.listen"] = f"{HOST}:{ports['ops']}"
        if member.kind == "broker":
            common |= {
                "log.dirs": str(self.layout.data_path(member.name)),
                "listeners": f"CLIENT://{HOST}:{ports['client']},INTERNAL://{HOST}:{ports['internal']}",
                # Each broker claims a node of its own; otherwise no topic could have two replicas.
                "node": f"node-{member.number}",
                "rack": f"rack-{member.number}",
                **self._of_internal_topics(),
            }
        if self.layout.shape.is_secure:
            common |= keys_of(self.layout, member)
        return common | self._overrides.get(member.kind, {}) | self._overrides.get(member.name, {})

    def _of_internal_topics(self) -> dict[str, object]:
        """Return the settings for as many replicas as there are brokers, at most Kafka's three.
        With fewer brokers than the default replication factor, groups, transactions and share
        groups would fail.
        """
        brokers = self.layout.shape.brokers
        return {
            "offsets.topic.replication.factor": min(3, brokers),
            "audit.topic.replication.factor": min(3, brokers),
            "transaction.state.log.replication.factor": min(3, brokers),
            "transaction.state.log.min.isr": min(2, brokers),
            "share.coordinator.state.topic.replication.factor": min(3, brokers),
            "share.coordinator.state.topic.min.isr": min(2, brokers),
        }

    def _check_installed(self, kinds: set[str]) -> None:
        if PROMETHEUS in kinds:
            find_prometheus()
        for kind in sorted(kinds - {"zookeeper", PROMETHEUS}):
            if importlib.util.find_spec(module_of(kind)) is None:
                raise CommandError(
                    f"the {kind} service is not installed in {sys.prefix}",
                    hint="run `make setup` in a checkout",
                    code=ExitCode.UNAVAILABLE,
                )

    def _check_ports(self, members: Sequence[Member]) -> None:
        taken = [
            (member, use, port)
            for member in members
            for use, port in member.ports.items()
            if not port_is_free(port)
        ]
        if not taken:
            return
        lines = [
            f"port {port} ({use} of {member.name}) is taken by"
            f" {port_owner(port) or 'another process'}"
            for member, use, port in taken
        ]
        raise CommandError(
            "\n".join(lines),
            hint="stop what listens there, or choose other ports: --base-port 29000 (all of them)"
            " or --port client=19092 (one kind)",
            code=ExitCode.UNAVAILABLE,
        )

    def _wait_ready(self, members: Sequence[Member], deadline_ms: int) -> None:
        waiting = list(members)
        problems: dict[str, str] = {}
        while waiting:
            for member in list(waiting):
                self._check_alive(member)
                problem = self._problem(member)
                if problem is None:
                    waiting.remove(member)
                else:
                    problems[member.name] = problem
            if waiting and self._clock.now_ms() >= deadline_ms:
                raise self._not_ready(waiting, problems)
            if waiting:
                time.sleep(_POLL_SECONDS)

    def _problem(self, member: Member) -> str | None:
        files = SecureFiles.of(self.layout) if self.layout.shape.is_secure else None
        problem = member_problem(member, files)
        if problem is not None or member.kind != "broker":
            return problem
        alive = {
            other.number
            for other in self.layout.members()
            if other.kind == "broker" and self._running(other.name) is not None
        }
        if files is None:
            return metadata_problem(member.ports["client"], alive)
        # As a process, because the clients' listener demands a login.
        return metadata_problem(member.ports["internal"], alive, files.process_tls())

    def _check_alive(self, member: Member) -> None:
        if self._running(member.name) is None:
            raise CommandError(
                f"{member.name} ended while it was starting\n{self._log_tail(member.name)}",
                hint=f"its log: {self.layout.log_path(member.name)}",
                code=ExitCode.UNAVAILABLE,
            )

    def _not_ready(self, waiting: Sequence[Member], problems: Mapping[str, str]) -> CommandError:
        lines = [
            f"{member.name} did not become ready: {problems[member.name]}" for member in waiting
        ]
        paths = ", ".join(str(self.layout.log_path(member.name)) for member in waiting)
        return CommandError("\n".join(lines), hint=f"see {paths}", code=ExitCode.TEMPORARY)

    def _log_tail(self, name: str) -> str:
        """Return the last lines of a log since this object started the process."""
        try:
            content = self.layout.log_path(name).read_bytes()
        except FileNotFoundError:
            return "it has no log"
        # A log that had grown too large was renamed when the process started.
        position = self._log_positions.get(name, 0)
        text = content[position if position <= len(content) else 0 :].decode("utf-8", "replace")
        return "\n".join(f"  | {line}" for line in text.splitlines()[-_LOG_LINES_SHOWN:])

    def _stop_together(self, names: Sequence[str], timeout_seconds: float) -> list[str]:
        """Send SIGTERM to all at once, with one deadline; return the names of killed processes."""
        processes = {name: found for name in names if (found := self._running(name)) is not None}
        supervisors = {name: found for name in names if (found := self._supervisor(name))}
        for name, process in processes.items():
            self._report(f"stopping {name}")
            send_signal(supervisors.get(name, process), signal.SIGTERM)
        deadline = self._clock.now_ms() + int(timeout_seconds * 1_000)
        killed = []
        for name, process in processes.items():
            if not self._ended_by(deadline, process):
                self._report(f"killing {name}: it did not stop within {timeout_seconds:g} s")
                self._kill(process)
                killed.append(name)
        for supervisor in supervisors.values():
            if not self._ended_by(deadline, supervisor):
                self._kill(supervisor)
        for name in names:
            (self.layout.run_directory / f"{name}.pid.json").unlink(missing_ok=True)
            self._supervisor_path(name).unlink(missing_ok=True)
        return killed

    def _ended_by(self, deadline_ms: int, process: ProcessFile) -> bool:
        return wait_ended(process, max(0, deadline_ms - self._clock.now_ms()) / 1_000)

    def _kill(self, process: ProcessFile) -> None:
        send_signal(process, signal.SIGKILL)
        ended = wait_ended(process, KILL_SECONDS)
        assert ended, f"pid {process.pid} survived SIGKILL"

    def _status(self, member: Member) -> MemberStatus:
        process = self._known(member.name)
        running = process is not None and process.running()
        uptime_ms = self._clock.wall_ms() - process.started_at_ms if process and running else None
        return MemberStatus(
            name=member.name,
            running=running,
            problem=self._problem(member) if running else "not running",
            pid=process.pid if process else None,
            ports=member.ports,
            uptime_ms=uptime_ms,
            log_path=str(self.layout.log_path(member.name)),
        )
