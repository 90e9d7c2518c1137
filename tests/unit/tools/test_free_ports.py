import json
import socket
import subprocess
import sys
from pathlib import Path

import free_ports
import pytest
from free_ports import free_port

TESTS = Path(__file__).parents[2]
ASKS = """
import json
from free_ports import free_port
print(json.dumps([free_port() for _ in range(250)]), flush=True)
input()
"""


def test_two_processes_do_not_get_one_port() -> None:
    argv, pipe = [sys.executable, "-c", ASKS], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, cwd=TESTS) as another:
        assert another.stdout is not None
        others = set(json.loads(another.stdout.readline()))
        own = {free_port() for _ in range(250)}
        assert len(own) == len(others) == 250
        assert not own & others
        another.communicate("\n")


def test_a_port_on_which_somebody_listens_is_left_out() -> None:
    free_port()
    following = free_ports._left[-1]
    with socket.create_server(("127.0.0.1", following)):
        assert free_port() != following


def test_ports_are_given_again_when_all_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    free_port()
    monkeypatch.setattr(free_ports, "_FIRSTS", tuple(free_ports._mine))
    oldest = next(iter(free_ports._mine))
    assert free_ports._slice() == oldest
    assert list(free_ports._mine)[-1] == oldest
