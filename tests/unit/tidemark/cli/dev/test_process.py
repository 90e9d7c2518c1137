import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark.cli.dev.process import (
    ProcessFile,
    pause_process,
    port_owner,
    process_identity,
    send_signal,
    start_detached,
    wait_ended,
)
from waiting import PATIENCE_S

SLEEP = "import time; print('ready', flush=True); time.sleep(3600)"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ProcessFile]:
    argv = [sys.executable, "-S", "-c", SLEEP]
    started = start_detached(argv, log_path=tmp_path / "a.log", env=os.environ)
    yield started
    send_signal(started, signal.SIGKILL)
    assert wait_ended(started, PATIENCE_S)


def test_a_started_process_runs_in_a_session_of_its_own(process: ProcessFile) -> None:
    assert process.running()
    assert os.getsid(process.pid) == process.pid


def test_a_process_is_found_again_by_its_file(process: ProcessFile, tmp_path: Path) -> None:
    path = tmp_path / "a.pid.json"
    process.write(path)
    assert ProcessFile.read(path) == process


def test_a_killed_process_no_longer_runs(process: ProcessFile) -> None:
    assert send_signal(process, signal.SIGKILL)
    assert wait_ended(process, PATIENCE_S)
    assert not process.running()
    assert not send_signal(process, signal.SIGTERM)


def thread_states(pid: int) -> set[str]:
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}


def test_a_paused_process_has_stopped_in_every_thread(tmp_path: Path) -> None:
    beats = (
        "import threading, time\n"
        "def beat():\n"
        "    while True: print('x', flush=True); time.sleep(0.001)\n"
        "[threading.Thread(target=beat).start() for _ in range(8)]\n"
    )
    log = tmp_path / "a.log"
    started = start_detached([sys.executable, "-S", "-c", beats], log_path=log, env=os.environ)
    try:
        for _ in range(20):
            size = log.stat().st_size
            while log.stat().st_size == size:
                time.sleep(0.001)
            pause_process(started.pid)
            assert thread_states(started.pid) == {"T"}
            send_signal(started, signal.SIGCONT)
    finally:
        send_signal(started, signal.SIGKILL)
        assert wait_ended(started, PATIENCE_S)


def test_pausing_what_is_gone_says_so(process: ProcessFile) -> None:
    send_signal(process, signal.SIGKILL)
    assert wait_ended(process, PATIENCE_S)
    with pytest.raises(ProcessLookupError):
        pause_process(process.pid)


def test_waiting_is_bounded(process: ProcessFile) -> None:
    assert not wait_ended(process, 0.01)


def test_another_process_with_the_same_pid_is_never_taken_for_it(process: ProcessFile) -> None:
    recycled = replace(process, identity="another start")
    assert not recycled.running()
    assert not send_signal(recycled, signal.SIGKILL)
    assert process.running()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": "x"}'])
def test_half_a_process_file_means_that_nothing_is_known(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pid.json"
    path.write_text(content)
    assert ProcessFile.read(path) is None


def test_output_goes_to_the_log_and_a_large_log_is_put_aside(tmp_path: Path) -> None:
    log_path = tmp_path / "a.log"
    with log_path.open("wb") as handle:
        handle.truncate(17 * 1024 * 1024)
    argv = [sys.executable, "-S", "-c", "import sys; print('out'); sys.stderr.write('err')"]
    assert wait_ended(start_detached(argv, log_path=log_path, env=os.environ), PATIENCE_S)
    assert sorted(log_path.read_text()) == sorted("out\nerr")
    assert (tmp_path / "a.log.1").stat().st_size == 17 * 1024 * 1024


def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_detached(["/nowhere/program"], log_path=tmp_path / "a.log", env={})


def test_our_own_identity_is_stable() -> None:
    assert process_identity(os.getpid()) == process_identity(os.getpid()) is not None


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_who_listens_at_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        owner = port_owner(server.getsockname()[1])
    assert owner is not None
    assert owner.startswith(f"pid {os.getpid()} (")
