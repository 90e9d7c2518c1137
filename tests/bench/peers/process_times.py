"""CPU and memory of all processes of a system, as the kernel counts them.

``/proc/<pid>/stat`` counts threads that have ended, too: a JVM starts and ends threads all the
time.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_STATE: Final = 2
"""Number of the first field after the name of the program, from 0."""
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 3, 13, 14, 15, 16


class ProcessTimes(NamedTuple):
    """A process. ``ticks``: its own, and those of its children that have ended."""

    parent: int
    ticks: int


def read_stat(text: str) -> ProcessTimes:
    """A line of /proc. The name of the program, in parentheses, may hold anything."""
    words = text.rpartition(")")[2].split()
    counted = (_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM)
    return ProcessTimes(
        parent=int(words[_PARENT - _STATE]),
        ticks=sum(int(words[field - _STATE]) for field in counted),
    )


def descendants(roots: Iterable[int], processes: Mapping[int, ProcessTimes]) -> set[int]:
    """These processes and all that they started."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in processes]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found


def ticks_of(roots: Iterable[int], processes: Mapping[int, ProcessTimes]) -> int:
    """CPU of these processes and of all that they started, those that have ended included."""
    return sum(processes[pid].ticks for pid in descendants(roots, processes))


def cpu_seconds(roots: Iterable[int]) -> float:
    """User and system time so far."""
    return ticks_of(roots, dict(_processes())) / _TICKS_A_SECOND


def memory_bytes(roots: Iterable[int]) -> int:
    """Proportional set size: pages that processes share count once."""
    return sum(map(_pss_bytes, descendants(roots, dict(_processes()))))


def _processes() -> Iterator[tuple[int, ProcessTimes]]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                text = (path / "stat").read_text(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            yield int(path.name), read_stat(text)


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
