"""Two workers of one group copy a topic exactly once; one that hangs is woken as a zombie, or, not
the first time, killed and replaced.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from chaos.cluster import GROUP_HEARTBEAT_MS, GROUP_SESSION_S
from chaos.copy_worker import COPIED, HANGS, REFUSED, STUCK_S
from chaos.load import QUICK
from chaos.topics import COPY, SOURCE

WORKERS: Final = 2
GROUP: Final = "chaos-copiers"
PROTOCOLS: Final = ("classic", "consumer")
"""Of groups; the seed decides."""
_TIMEOUT_S: Final = 10.0
_HANG_EVERY_S: Final = 25.0
_HANG_S: Final = (GROUP_SESSION_S + 1.0, GROUP_SESSION_S + 7.0)
"""Some are longer than their transaction's timeout, some not."""
_KILLED_SHARE: Final = 0.3
_CALM_S: Final = 1.0
_LOOK_S: Final = 0.1
_END_S: Final = 10.0
_SAID_LINES: Final = 12
_TESTS: Final = Path(__file__).parents[1]

# With the other protocol the brokers say these.
_CLASSIC: Final[Mapping[str, object]] = {
    "session.timeout.ms": int(GROUP_SESSION_S * 1_000),
    "heartbeat.interval.ms": GROUP_HEARTBEAT_MS,
}

Say = Callable[[str], None]


def worker_plan(bootstrap: str, protocol: str, number: int, life: int) -> dict[str, Any]:
    """What a copy_worker is told."""
    session_ms = int(GROUP_SESSION_S * 1_000)
    return {
        "source": SOURCE,
        "copy": COPY,
        "seed": f"{number}.{life}",
        "hang_every_s": _HANG_EVERY_S,
        "common": {"bootstrap.servers": bootstrap, **QUICK},
        "consumer": {
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "max.poll.interval.ms": 4 * session_ms,
            "fetch.wait.max.ms": 200,
            "group.protocol": protocol,
            **(_CLASSIC if protocol == "classic" else {}),
        },
        "producer": {
            "transactional.id": f"chaos-copier-{number}",
            "transaction.timeout.ms": int(_TIMEOUT_S * 1_000),
            "request.timeout.ms": 5_000,
            "message.timeout.ms": int(_TIMEOUT_S * 1_000),
            "linger.ms": 2,
        },
    }


class _Worker:
    """A process, and what it said last."""

    def __init__(self, plan: Mapping[str, Any], number: int, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.copy_worker", json.dumps(plan)],
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.hangs_since: float | None = None
        self._listener = threading.Thread(target=self._listen, name=f"copier-{number}")
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(HANGS):
                self.hangs_since = time.monotonic()
            self._hear(line.strip())

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def was_stuck(self) -> bool:
        return self._process.poll() == -signal.SIGALRM

    def wake(self) -> None:
        self.hangs_since = None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """And wait until all that it said was heard."""
        self._process.kill()
        self._process.wait(_END_S)
        self._listener.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Copiers:
    """All workers. ``zombies``: of those that were woken, how many were refused next; ``stuck``:
    ended by their own alarm.
    """

    def __init__(self, bootstrap: str, seed: int, tell: Say) -> None:
        self._bootstrap, self._tell = bootstrap, tell
        self._dice = random.Random(seed)
        self._protocol = PROTOCOLS[seed % len(PROTOCOLS)]
        self._stop, self._calm = threading.Event(), threading.Event()
        self._lives: Counter[int] = Counter()
        self._hangs: Counter[int] = Counter()
        self._just_woken: set[int] = set()
        self._workers: dict[int, _Worker] = {}
        self._hang_s: dict[int, float] = {}
        self.copied_at: list[float] = []
        self.zombies = 0
        self.stuck = 0
        self._said: dict[int, deque[str]] = defaultdict(lambda: deque(maxlen=_SAID_LINES))
        self.errors: list[str] = []

    def stop(self) -> None:
        """``run`` then ends."""
        self._stop.set()

    def calm(self) -> None:
        """Who hangs from now on is woken soon."""
        self._calm.set()

    def run(self) -> None:
        """Start the workers, wake or kill those that hang, replace those that ended."""
        try:
            for number in range(1, WORKERS + 1):
                self._start(number)
            while not self._stop.wait(_LOOK_S):
                for number, worker in list(self._workers.items()):
                    self._look_after(number, worker)
        finally:
            for worker in self._workers.values():
                worker.kill()

    def _start(self, number: int) -> None:
        self._lives[number] += 1
        life = self._lives[number]
        self._just_woken.discard(number)
        plan = worker_plan(self._bootstrap, self._protocol, number, life)
        self._workers[number] = _Worker(plan, number, lambda line: self._hear(number, line))

    def _look_after(self, number: int, worker: _Worker) -> None:
        if worker.was_stuck:
            self._tell(f"copier-{number} was stuck in a call for {STUCK_S} s, and ended")
            self.stuck += 1
            worker.kill()
            self._start(number)
        elif worker.has_ended:
            worker.kill()
            self.errors.append(f"copier-{number} ended by itself: " + "; ".join(self._said[number]))
            self._start(number)
        elif worker.hangs_since is not None:
            self._end_hang(number, worker, time.monotonic() - worker.hangs_since)

    def _end_hang(self, number: int, worker: _Worker, hung_s: float) -> None:
        hold_s = self._hang_s.setdefault(number, self._dice.uniform(*_HANG_S))
        # At once would be too early: it tells that it hangs, and then stops itself.
        if hung_s < (_CALM_S if self._calm.is_set() else hold_s):
            return
        del self._hang_s[number]
        self._hangs[number] += 1
        if self._hangs[number] > 1 and self._dice.random() < _KILLED_SHARE:
            self._tell(f"copier-{number} hung for {hung_s:.1f} s and is killed")
            worker.kill()
            self._start(number)
        else:
            self._tell(f"copier-{number} hung for {hung_s:.1f} s and wakes")
            self._just_woken.add(number)
            worker.wake()

    def _hear(self, number: int, line: str) -> None:
        """From the worker's own thread."""
        if line.startswith(COPIED):
            self.copied_at.append(time.monotonic())
            self._just_woken.discard(number)
            return
        if REFUSED in line and number in self._just_woken:
            self._just_woken.discard(number)
            self.zombies += 1
        self._said[number].append(line)
        self._tell(f"copier-{number}: {line}")
