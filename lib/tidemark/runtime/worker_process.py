"""One worker process and the thread that feeds it, a job at a time.

The thread waits for an answer until the job's deadline, then kills the process; the next job starts
another one. The process limits its own memory when it starts, and ends when its pipe is closed, as
it is when the parent dies.
"""

import multiprocessing
import os
import pickle
import queue
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final, NamedTuple

_STARTS_MAX: Final = 3
_START_S_MAX: Final = 60.0
"""Time within which a new process has to wait for jobs: spawning imports modules."""
_EXIT_OUT_OF_MEMORY: Final = 65
"""Exit code of a process that had no memory to receive a job."""


class WorkerDiedError(Exception):
    """The worker process died (killed, or by a library's abort) under this job, or none could be
    started; the next job gets a new one.
    """


class JobTooLongError(Exception):
    """The job took longer than the pool's deadline: its process was killed."""


class JobTooLargeError(Exception):
    """The job took more memory than a worker of this pool may have."""


class WorkerLimits(NamedTuple):
    """Limits of a worker process."""

    niceness: int
    deadline_s: float | None
    """Longest duration of one job; None: no bound."""
    memory_max_bytes: int | None
    """Memory beyond that of the process at its start; None: no bound."""


class Task(NamedTuple):
    """One call; all of it must pickle."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Outcome(NamedTuple):
    """Result of a call: its value, or the error that ended it."""

    value: Any
    error: BaseException | None


class WorkerProcess:
    """Thread with a process, which it starts at the first task, and again after it died."""

    def __init__(self, limits: WorkerLimits) -> None:
        """Raises RuntimeError when no further thread can be started."""
        self._limits = limits
        self._tasks: queue.SimpleQueue[tuple[Task, Callable[[Outcome], None]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        """Held while the process is started, killed and reaped, so that no process id is used after
        it was reaped.
        """
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self._thread.start()

    def perform(self, task: Task, over: Callable[[Outcome], None]) -> None:
        """Queue a task; ``over`` is called in the thread."""
        self._tasks.put((task, over))

    def end(self) -> None:
        """Kill the process, reap it, and end the thread. Blocks; idempotent."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._tasks.get()) is not None:
            task, over = entry
            try:
                outcome = self._performed(task)
            except Exception as error:  # noqa: BLE001 - the caller is answered, whatever happens
                self._reap()
                outcome = Outcome(None, error)
            over(outcome)
        self._reap()

    def _performed(self, task: Task) -> Outcome:
        pipe = self._hand_over(task)
        if not pipe.poll(self._limits.deadline_s):
            self._reap()
            raise JobTooLongError(f"not done after {self._limits.deadline_s} s")
        try:
            outcome = Outcome(*pipe.recv())
        except (EOFError, OSError) as problem:
            exit_code = self._reap()
            if exit_code == _EXIT_OUT_OF_MEMORY:
                raise self._too_large() from problem
            raise WorkerDiedError(f"the worker process died (exit code {exit_code})") from problem
        if isinstance(outcome.error, MemoryError):
            self._reap()  # what it holds goes back at once
            raise self._too_large() from outcome.error
        return outcome

    def _too_large(self) -> JobTooLargeError:
        return JobTooLargeError(f"more than {self._limits.memory_max_bytes} bytes")

    def _hand_over(self, task: Task) -> Connection:
        for _ in range(_STARTS_MAX):
            pipe = self._live_pipe()
            try:
                pipe.send(tuple(task))
            except OSError as problem:
                if self._reap() == _EXIT_OUT_OF_MEMORY:
                    raise self._too_large() from problem
                # It died while idle: no job was lost.
            else:
                return pipe
        raise WorkerDiedError("the worker process does not start")

    def _live_pipe(self) -> Connection:
        """Pipe to a process that waits for tasks."""
        with self._lock:  # is_alive reaps a process that has ended
            has_ended = self._process is not None and not self._process.is_alive()
        if has_ended:
            self._reap()
        if self._pipe is not None:
            return self._pipe
        try:
            pipe = self._spawn()
            if not pipe.poll(_START_S_MAX):
                raise WorkerDiedError("the worker process does not start")
            pipe.recv_bytes()
        except (EOFError, OSError, RuntimeError) as problem:
            self._reap()
            reason = f"the worker process cannot be started: {problem}"
            raise WorkerDiedError(reason) from problem
        return pipe

    def _spawn(self) -> Connection:
        # spawn: a forked copy would share our sockets, descriptors and locks.
        context = multiprocessing.get_context("spawn")
        with self._lock:
            if self._ended:
                raise WorkerDiedError("the pool was closed")
            ours, theirs = context.Pipe()
            try:
                self._pipe = ours
                process = context.Process(
                    target=_serve, args=(theirs, self._limits), name="worker", daemon=True
                )
                process.start()
                self._process = process
            finally:
                theirs.close()
        return ours

    def _reap(self) -> int | None:
        """Kill and reap the process, if there is one; return its exit code."""
        with self._lock:
            process, self._process = self._process, None
            pipe, self._pipe = self._pipe, None
            if pipe is not None:
                pipe.close()
            if process is None:
                return None
            process.kill()
            process.join()
            exit_code = process.exitcode
            process.close()
        return exit_code


# -- in the process


def _serve(pipe: Connection, limits: WorkerLimits) -> None:
    os.nice(limits.niceness)
    # Ctrl-C reaches the whole process group, but the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if limits.memory_max_bytes is not None:
        _bound_memory(limits.memory_max_bytes)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), name="tasks", daemon=True).start()
    pipe.send_bytes(b"ready")
    while True:
        pipe.send_bytes(_answer(tasks.get()))


def _receive(pipe: Connection, tasks: "queue.SimpleQueue[bytes]") -> None:
    """Queue the parent's tasks. This needs a thread of its own: without it a worker would outlive
    a parent that was killed.
    """
    exit_code = 0
    try:
        while True:
            tasks.put(pipe.recv_bytes())
    except (EOFError, OSError):
        pass
    except MemoryError:  # the rest of the job stays in the pipe: nothing can follow it
        exit_code = _EXIT_OUT_OF_MEMORY
    finally:
        os._exit(exit_code)


def _answer(pickled: bytes) -> bytes:
    """Run a pickled task; return its outcome, pickled: (value, None) or (None, error)."""
    try:
        function, args, kwargs = pickle.loads(pickled)
        return pickle.dumps((function(*args, **kwargs), None), pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        error: BaseException = MemoryError()
    except Exception as problem:  # noqa: BLE001 - raised again in the parent
        error = problem
    try:
        return pickle.dumps((None, error), pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - an error that does not pickle is passed on as text
        return pickle.dumps((None, RuntimeError(repr(error))), pickle.HIGHEST_PROTOCOL)


def _bound_memory(bytes_max: int) -> None:
    """Limit private writable memory to what is used now and ``bytes_max`` more; code of libraries
    does not count.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    held = int(lines["VmData"].split()[0]) * 1_024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + bytes_max
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
