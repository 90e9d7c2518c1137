"""Detached processes: started in a session of their own, identified by pid and start time."""

import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tidemark.runtime.clock import Clock
from tidemark.runtime.supervised import PID_DESCRIPTOR_VARIABLE

_LOG_BYTES_MAX: Final = 16 * 1024 * 1024
_POLL_SECONDS: Final = 0.05
_PAUSE_POLL_SECONDS: Final = 0.001
_PAUSE_MS_MAX: Final = 10_000
_clock = Clock()


@dataclass(frozen=True, slots=True)
class ProcessFile:
    """File about a started process. ``identity`` differs from that of others with the same pid."""

    pid: int
    identity: str
    started_at_ms: int

    @classmethod
    def read(cls, path: Path) -> "ProcessFile | None":
        """Return the file's content; None if it does not exist or is damaged after a crash."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(int(content["pid"]), str(content["identity"]), int(content["started_at_ms"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Replace the whole file."""
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        scratch.replace(path)

    def running(self) -> bool:
        """True if this very process runs. A zombie does not."""
        _reap(self.pid)
        return process_identity(self.pid) == self.identity


def process_identity(pid: int) -> str | None:
    """Return an identity that differs between processes with the same pid; None if none runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self").exists() else _identity_by_ps(pid)
    # The second field, the program's name in parentheses, may hold anything: start after its end.
    words = stat.rpartition(")")[2].split()
    state, thread_count, start_ticks = words[0], int(words[17]), words[19]
    # A dead first thread is shown as a zombie while others are still ending and hold ports.
    ended = state in "ZX" and thread_count <= 1
    return None if ended else f"{boot_id}/{start_ticks}"


def _identity_by_ps(pid: int) -> str | None:
    """Return the identity on systems without /proc."""
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    words = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split(None, 1)
    return None if len(words) < 2 or words[0].startswith("Z") else words[1].strip()


def start_supervised(
    argv: Sequence[str], *, log_path: Path, env: Mapping[str, str]
) -> tuple[ProcessFile, ProcessFile]:
    """Start a supervisor, and return it and the service that it has started. Raises OSError if the
    program cannot be run, or ended before it started the service.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="ascii") as report:
        try:
            os.set_inheritable(writing, True)
            env = {**env, PID_DESCRIPTOR_VARIABLE: str(writing)}
            supervisor = start_detached(argv, log_path=log_path, env=env)
        finally:
            os.close(writing)
        line = report.readline()
    if not line:
        raise ChildProcessError(errno.ECHILD, "it ended at once; see its log")
    pid = int(line)
    return supervisor, ProcessFile(pid, process_identity(pid) or "", supervisor.started_at_ms)


def start_detached(argv: Sequence[str], *, log_path: Path, env: Mapping[str, str]) -> ProcessFile:
    """Start a program in a session of its own, with its output appended to ``log_path``.

    Raises OSError if the program cannot be run.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    if log_path.exists() and log_path.stat().st_size > _LOG_BYTES_MAX:
        log_path.replace(log_path.with_suffix(".log.1"))
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_path), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
    )
    return ProcessFile(pid, process_identity(pid) or "", _clock.wall_ms())


def send_signal(process: ProcessFile, number: signal.Signals) -> bool:
    """Send a signal; return False if the process no longer runs. Another process with the same pid
    does not get it.
    """
    if not process.running():
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def pause_process(pid: int) -> None:
    """Send SIGSTOP, and wait until every thread has stopped: on a busy machine threads continue for
    a while. Raises ProcessLookupError, TimeoutError.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = _clock.now_ms() + _PAUSE_MS_MAX
    while not _is_stopped(pid):
        if _clock.now_ms() > deadline:
            raise TimeoutError(f"process {pid} did not stop within {_PAUSE_MS_MAX} ms of SIGSTOP")
        time.sleep(_PAUSE_POLL_SECONDS)


def _is_stopped(pid: int) -> bool:
    """True if no thread runs; always True without /proc."""
    stats: list[str] = []
    for thread in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended
            stats.append((thread / "stat").read_text(encoding="utf-8", errors="replace"))
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)


def wait_ended(process: ProcessFile, timeout_seconds: float) -> bool:
    """Wait for the end of a process; return True if it was in time."""
    deadline = _clock.now_ms() + int(timeout_seconds * 1_000)
    while process.running():
        remaining_ms = deadline - _clock.now_ms()
        if remaining_ms <= 0:
            return False
        _wait_exit(process.pid, remaining_ms / 1_000)
    return True


def _wait_exit(pid: int, timeout_seconds: float) -> None:
    """Return when the process or the time has ended; soon, if the kernel has no pidfd."""
    if not hasattr(os, "pidfd_open"):
        time.sleep(min(_POLL_SECONDS, timeout_seconds))
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.poll(timeout_seconds * 1_000)
    finally:
        os.close(handle)


def _reap(pid: int) -> None:
    """Take the exit status of a child that has ended: a zombie keeps its pid."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def port_owner(port: int) -> str | None:
    """Return ``pid 4711 (java ...)`` of the process that listens at a port; None if unknown."""
    inodes = {
        words[9]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for words in _socket_lines(table)
        if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port
    }
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(handle) in wanted for handle in (entry / "fd").iterdir()):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                return f"pid {entry.name} ({command[:80]})"
        except OSError:
            continue  # of another user, or ended meanwhile
    return None


def _socket_lines(table: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(table).read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return []
