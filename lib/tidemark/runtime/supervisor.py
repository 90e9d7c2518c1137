"""Supervisor: the parent of a service. It waits for the end of the service, and records it.

    python -m tidemark.runtime.supervisor broker --config broker.yaml

It passes signals on, ends with the exit code of the service, and takes over orphans as PID 1 of a
container must. When the service has ended, by whatever cause, it removes the service's znode and
records the end (tidemark.runtime.witness), so that a leader that has crashed is replaced at once.
When ZooKeeper cannot be reached within ``RECORD_S`` it gives up: session and lease then run out as
they do without a supervisor. If the supervisor is killed, the kernel kills the service.

It imports little: each service has one, and the record must not wait for imports.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from tidemark.runtime import supervised, witness
from tidemark.runtime.zk_brief import transact
from tidemark.runtime.zk_calls import ZkError

RECORD_S: Final = 10.0
"""Longest time for which the end of a process is tried to be recorded."""
_CLEAN_RECORD_S: Final = 1.0
"""The same for a service that ended with exit code 0: it has closed its session, if it could."""
_RETRY_S: Final = 0.2
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KILLED: Final = 128
"""Exit code of a process that a signal ended, less the signal's number, as in shells."""
_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def supervise(command: Sequence[str]) -> int:
    """Run a command until it ends; record its end, and return its exit code."""
    report = os.environ.pop(supervised.PID_DESCRIPTOR_VARIABLE, "")
    if report.isdigit():
        os.set_inheritable(int(report), False)  # noqa: FBT003 - the call takes no keyword
    with supervised.make_file() as left:
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        child = _start(command, left.fileno())
        for number in _PASSED_ON:
            signal.signal(number, lambda received, _: os.kill(child, received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        if report.isdigit():
            os.write(int(report), b"%d\n" % child)
            os.close(int(report))
        code = _wait(child)
        try:
            znodes = supervised.read(left.fileno())
        except ValueError as error:
            _say(f"no end recorded: {error}")
            return code
    if znodes is not None:
        _record(znodes, RECORD_S if code else _CLEAN_RECORD_S)
    return code


def _start(command: Sequence[str], shared: int) -> int:
    """Start the command as a child that has the file ``shared`` open; return its pid."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _die_with_parent()
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


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, where the kernel can (Linux)."""
    import ctypes  # only here, in the child: the supervisor never uses it

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _wait(child: int) -> int:
    """Wait until the child has ended, with all its threads; return its exit code."""
    while True:
        pid = -1  # any child
        if hasattr(os, "waitid"):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            assert ended is not None, "it waits"
            pid = ended.si_pid
            if pid == child:
                _ignore_signals()  # while it keeps its pid, which ends with the next call
        pid, status = os.waitpid(pid, 0)
        if pid == child:
            _ignore_signals()
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _KILLED - code


def _ignore_signals() -> None:
    """Pass no signal on: the pid may be another process's soon."""
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_IGN)


def _record(znodes: witness.ProcessZnodes, within_s: float) -> None:
    """Record the end of the process; give up after a while."""
    ops = witness.recording(znodes)
    deadline = time.monotonic() + within_s
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            transact(znodes.zookeeper, ops, timeout_s=left_s, access=znodes.access)
        except witness.MOOT:
            return
        except ZkError:
            time.sleep(_RETRY_S)
        else:
            return
    _say(f"end not recorded: ZooKeeper at {znodes.zookeeper} does not answer")


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
