"""Broker processes for tests: ``python -m broker`` against a real ZooKeeper and controller."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from e2e import passes
from e2e.controllers import ControllerProcess
from e2e.zookeeper import HOST, running_zookeeper
from free_ports import free_port
from waiting import PATIENCE_S, wait_for

READY_S: Final = PATIENCE_S
STOP_S: Final = PATIENCE_S


class BrokerProcess:
    """One broker. Its ports stay the same over restarts."""

    def __init__(self, number: int, connect: str, directory: Path, *extra: str) -> None:
        self.number = number
        self.connect = connect
        self.port, self.ops = free_port(), free_port()
        self.grpc = f"{HOST}:{free_port()}"
        self.log_path = directory / f"broker-{number}.log"
        self.data = directory / f"data-{number}"
        self._argv = [sys.executable, "-P", "-m", "broker", "--broker.id", str(number)]
        self._argv += ["--zookeeper.connect", connect, "--log.format", "json"]
        self._argv += ["--zookeeper.session.timeout.ms", "2000", "--node", f"machine-{number}"]
        self._argv += ["--listeners", f"CLIENT://{HOST}:{self.port}", "--grpc.listen", self.grpc]
        self._argv += ["--ops.listen", f"{HOST}:{self.ops}"]
        self._argv += ["--shutdown.deadline.ms", "300000", *extra]
        self._argv += passes.flags("broker", extra)
        self.log_dirs = str(self.data)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients connect."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        """True once it was started, until its process has ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start the process; ``wait_ready`` waits."""
        with self.log_path.open("ab") as log:
            argv = [*self._argv, "--log.dirs", self.log_dirs]
            argv += ["--runtime.dir", str(self.data.parent)]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def http(self, path: str) -> tuple[int, str]:
        """Status and body from the operator's door; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.ops}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self) -> None:
        """Until /readyz says so."""
        wait_for(lambda: self.http("/readyz")[0] == 200, self._story)

    def _story(self) -> str:
        return f"broker {self.number} is not ready:\n{self.log_path.read_text()[-4_000:]}"

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def logged(self) -> list[dict[str, object]]:
        """The log's lines."""
        return [
            json.loads(line)
            for line in self.log_path.read_text().splitlines()
            if line.startswith("{")
        ]


Made = TypeVar("Made", bound=BrokerProcess)


@contextmanager
def running_cluster(
    directory: Path, brokers: int = 1, *extra: str
) -> Iterator[list[BrokerProcess]]:
    """ZooKeeper, a controller and ready brokers; all ended with the block."""
    with running_cluster_of(BrokerProcess, directory, brokers, *extra) as started:
        yield started


@contextmanager
def running_cluster_of(
    make: Callable[..., Made], directory: Path, brokers: int, *extra: str
) -> Iterator[list[Made]]:
    """The same with brokers that ``make`` returns."""
    with ExitStack() as ending:
        zookeeper = ending.enter_context(running_zookeeper(directory))
        controller = ControllerProcess(1, zookeeper.connect, directory)
        ending.callback(controller.stop)
        replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
        internal = ["--offsets.topic.replication.factor", replicas]
        internal += ["--transaction.state.log.replication.factor", replicas]
        internal += ["--transaction.state.log.min.isr", in_sync]
        extra = (*internal, *extra)
        started = [
            make(number + 1, zookeeper.connect, directory, *extra) for number in range(brokers)
        ]
        for broker in started:
            broker.start()
            ending.callback(broker.stop)
        for broker in started:
            broker.wait_ready()
        yield started
