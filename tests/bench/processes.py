"""Processes under measurement: their CPU seconds and memory as the kernel counts them."""

import ctypes
import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pyarrow
from bench.load import Outcome, Plan
from free_ports import free_port

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}


def cpu_seconds(pid: int) -> float:
    """Time on a processor of a process's living threads, in nanosecond steps.

    /proc/<pid>/stat counts in ticks of 10 ms, which is as much as a run of the floor takes.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def rss_bytes(pid: int) -> int:
    """Resident memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_for_port(port: int, seconds: float = 10) -> None:
    """Until something accepts connections there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def floor_server(kind: str, directory: Path, answer_bytes: int) -> Iterator[tuple[int, int]]:
    """A floor process; yields its port and pid."""
    port = free_port()
    arguments = [sys.executable, "-m", "bench.floor", kind, str(port), str(directory)]
    process = subprocess.Popen([*arguments, str(answer_bytes)], env=ENVIRONMENT)
    try:
        wait_for_port(port)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def background_load(plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
    """A load that runs beside the one measured."""
    command = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def measure(plan: Plan, pid: int) -> tuple[Outcome, float]:
    """Run a load in its own process; its outcome, and the CPU seconds of ``pid`` meanwhile."""
    before = cpu_seconds(pid)
    command = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=True)
    return Outcome(**json.loads(done.stdout)), cpu_seconds(pid) - before


def drop_from_page_cache(paths: list[Path]) -> None:
    """fsync, then posix_fadvise(DONTNEED): the next read comes from the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_share(paths: list[Path]) -> float:
    """The part of these files' pages that is in the page cache (mincore)."""
    resident = pages = 0
    libc = ctypes.CDLL(None, use_errno=True)
    for path in paths:
        size = path.stat().st_size
        if size == 0:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as area:
            count = -(-size // mmap.PAGESIZE)
            states = (ctypes.c_ubyte * count)()
            address = pyarrow.py_buffer(area).address
            if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), states) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            resident += sum(state & 1 for state in states)
            pages += count
    return resident / max(pages, 1)
