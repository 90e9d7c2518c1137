"""A real ZooKeeper for tests: ``with running_zookeeper(tmp_path) as zookeeper: ...``."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from free_ports import free_port
from tidemark.cli.dev.process import pause_process
from tidemark.cli.dev.zookeeper import find_jars, find_java
from waiting import PATIENCE_S

HOST: Final = "127.0.0.1"
START_S_MAX: Final = PATIENCE_S
STOP_S_MAX: Final = PATIENCE_S


class RunningZookeeper(NamedTuple):
    """A server of its own, on a free port. ``connect`` has no chroot."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def connect(self) -> str:
        """For ``zookeeper.connect``."""
        return f"{HOST}:{self.port}"

    def pause(self) -> None:
        """Answer nobody, keep every connection: what a long garbage collection does."""
        pause_process(self.process.pid)

    def resume(self) -> None:
        """Go on."""
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def running_zookeeper(directory: Path, *, tick_ms: int = 500) -> Iterator[RunningZookeeper]:
    """A ZooKeeper server with its data under ``directory``, ended with the block."""
    port = free_port()
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime={tick_ms}\ndataDir={directory / 'zookeeper-data'}\nclientPort={port}\n"
        f"clientPortAddress={HOST}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        "minSessionTimeout=1000\nmaxSessionTimeout=60000\n4lw.commands.whitelist=ruok,srvr\n"
        # A test's data need not outlive the machine.
        "forceSync=no\n",
        encoding="utf-8",
    )
    log_path = directory / "zookeeper.log"
    server = "org.apache.zookeeper.server.ZooKeeperServerMain"
    argv = [find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    argv += ["-Dzookeeper.admin.enableServer=false", "-cp", f"{find_jars()}/*"]
    with log_path.open("wb") as log:
        process = subprocess.Popen([*argv, server, str(config)], stdout=log, stderr=log)
    try:
        _wait_serving(process, port, log_path)
        yield RunningZookeeper(process, port, log_path)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S_MAX)


def _wait_serving(process: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if _serves(port):
            return
        time.sleep(0.05)
    tail = log_path.read_text(encoding="utf-8", errors="replace")[-2_000:]
    raise AssertionError(f"ZooKeeper did not start at port {port}: {tail}")


def _serves(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), 1.0) as sock:
            sock.sendall(b"srvr")
            return b"Mode:" in sock.recv(4_096)
    except OSError:
        return False
