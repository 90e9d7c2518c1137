"""Supervisor: the parent of a service. It waits for the end of the service, and records it.

    python -m tidemark.runtime.supervisor broker --config broker.yaml

It passes signals on, ends with the exit code of the service, and takes over orphans as PID 1 of a
container must. When the service has ended, by whatever cause, it removes the service's znode and
records the end (tidemark.runtime.witness), so that a leader that has crashed is replaced at once.
When ZooKeeper cannot be reached within ``RECORD_S`` it gives up: session and lease then run out as
they do without a supervisor. If the supervisor is killed, the kernel kills the service.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from tidemark.runtime import supervised
from tidemark.runtime.witness import ProcessZnodes, record_end
from tidemark.runtime.zk_session import ZkError, ZkSession, ZkUnavailableError

RECORD_S: Final = 10.0
"""Longest time for which the end of a process is tried to be recorded."""
_RETRY_S: Final = 0.2
_SESSION_MS: Final = 4_000
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KILLED: Final = 128
"""Exit code of a process that a signal ended, less the signal's number, as in shells."""
_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def supervise(command: Sequence[str]) -> int:
    """Run a command until it ends; record its end, and return its exit code."""
    with supervised.make_file() as left:
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        child = _start(command, left.fileno())
        for number in _PASSED_ON:
            signal.signal(number, lambda received, _: _pass_on(child, received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        code = _wait(child)
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_IGN)  # the pid may be another process's by now
        try:
            znodes = supervised.read(left.fileno())
        except ValueError as error:
            _say(f"no end recorded: {error}")
            return code
    if znodes is not None:
        asyncio.run(_record(znodes))
    return code


def _start(command: Sequence[str], shared: int) -> int:
    """Start the command as a child that has the file ``shared`` open; return its pid."""
    parent = os.getpid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    child = os.fork()
    if child:
        return child
    try:
        if prctl is not None:
            prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_KILLED + signal.SIGKILL)  # the supervisor ended before the call
        os.set_inheritable(shared, True)  # noqa: FBT003 - the call takes no keyword
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        environment = {**os.environ, supervised.DESCRIPTOR_VARIABLE: str(shared)}
        os.execve(command[0], list(command), environment)
    except OSError as error:
        _say(f"cannot run {command[0]}: {error.strerror}")
        os._exit(_KILLED - 1)
    raise AssertionError("exec does not return")


def _pass_on(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        return


def _wait(child: int) -> int:
    """Wait until the child has ended, with all its threads; return its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _KILLED - code


async def _record(znodes: ProcessZnodes) -> None:
    """Record the end of the process; give up after ``RECORD_S``."""
    session = ZkSession(znodes.zookeeper, session_timeout_ms=_SESSION_MS)
    try:
        async with asyncio.timeout(RECORD_S):
            await session.start(RECORD_S)
            while True:
                try:
                    await record_end(session, znodes)
                    break
                except ZkError:
                    await session.wait_connected()
                    await asyncio.sleep(_RETRY_S)
    except (TimeoutError, ZkUnavailableError):
        _say(f"end not recorded: ZooKeeper at {znodes.zookeeper} does not answer")
    finally:
        await session.stop()


def _say(text: str) -> None:
    sys.stderr.write(f"supervisor: {text}\n")
    sys.stderr.flush()


def main() -> None:
    """Entry point: the arguments are a service's module and the arguments of its own."""
    if len(sys.argv) < 2:
        _say("usage: python -m tidemark.runtime.supervisor MODULE [ARGUMENT ...]")
        sys.exit(64)
    sys.exit(supervise([sys.executable, "-P", "-m", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
