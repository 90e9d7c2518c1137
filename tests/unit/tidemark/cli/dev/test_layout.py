import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark.cli.dev.layout import (
    Layout,
    Ports,
    Shape,
    free_port_block,
    port_is_free,
)
from tidemark.cli.failure import CommandError


def test_every_process_has_its_own_ports() -> None:
    base = Ports.from_base(20_000)
    shape = Shape(9, 9, base, txn_coordinators=9, share_coordinators=9, is_secure=True)
    members = Layout(Path("d"), shape).members()
    ports = [port for member in members for port in member.ports.values()]
    assert len(ports) == len(set(ports))
    assert all(20_000 <= port < 20_140 for port in ports)


def test_the_defaults_are_the_documented_ones() -> None:
    layout = Layout(Path("d"))
    assert layout.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert layout.member("broker-3").ports == {
        "client": 9094,
        "internal": 9194,
        "grpc": 9294,
        "ops": 9394,
    }
    assert [member.name for member in layout.members()][:2] == ["zookeeper", "controller-1"]


def test_a_shape_is_kept_for_the_next_command(tmp_path: Path) -> None:
    shape = Shape(brokers=2, ports=Ports.from_base(30_000).changed({"client": 9}))
    path = tmp_path / "cluster.json"
    shape.write(path)
    assert Shape.read(path) == shape
    assert Shape.read(tmp_path / "none.json") is None


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": 2}', '{"format": 1, "x": 1}'])
def test_a_shape_that_cannot_be_read_is_a_clear_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(content)
    with pytest.raises(CommandError, match="cannot read"):
        Shape.read(path)


def test_names_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(CommandError, match="there are: zookeeper, controller-1"):
        Layout(Path("d")).member("broker-7")
    with pytest.raises(CommandError, match="the kinds are: zookeeper"):
        Ports().changed({"kafka": 1})
    with pytest.raises(CommandError, match="1 to 9 brokers"):
        Shape(brokers=10)
    with pytest.raises(CommandError, match="0 to 9 txn-coordinators"):
        Shape(txn_coordinators=-1)


def test_broker_ids_may_begin_at_0_with_the_same_ports() -> None:
    layout = Layout(Path("d"), Shape(brokers=2, first_broker_id=0))
    brokers = [one for one in layout.members() if one.kind == "broker"]
    assert [(one.name, one.number, one.ports["client"]) for one in brokers] == [
        ("broker-0", 0, 9092),
        ("broker-1", 1, 9093),
    ]
    with pytest.raises(CommandError, match="first broker id is 0 to 999, not -1"):
        Shape(first_broker_id=-1)


def test_coordinators_come_last_and_keep_their_own_ports() -> None:
    layout = Layout(Path("d"), Shape(txn_coordinators=2, share_coordinators=1))
    assert [member.name for member in layout.members()][-3:] == [
        "txn-coordinator-1",
        "txn-coordinator-2",
        "share-coordinator-1",
    ]
    txn, share = layout.member("txn-coordinator-2"), layout.member("share-coordinator-1")
    assert (txn.module, txn.number) == ("txn_coordinator", 2)
    assert txn.ports == {"grpc": 19_191, "ops": 9493}
    assert (share.module, share.ports) == ("share_coordinator", {"grpc": 19_290, "ops": 9592})


def test_a_shape_that_an_earlier_release_kept_gets_the_default(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    Shape(brokers=2).write(path)
    content = json.loads(path.read_text())
    for kind in ("txn", "share"):
        del content[f"{kind}_coordinators"]
        del content["ports"][f"{kind}_grpc"], content["ports"][f"{kind}_ops"]
    path.write_text(json.dumps(content))
    kept = Shape.read(path)
    assert kept == replace(Shape.default(), brokers=2)


def test_a_taken_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not port_is_free(server.getsockname()[1])


def test_free_ports_are_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    layout = Layout.on_free_ports(tmp_path)
    assert 20_000 <= layout.shape.ports.zookeeper < 32_000


GIVEN_TO_ANOTHER = """
from tidemark.cli.dev.layout import free_port_block
print([free_port_block() for _ in range(8)], flush=True)
input()
"""


def test_two_processes_do_not_get_one_block_of_ports() -> None:
    own = {free_port_block() for _ in range(8)}
    argv = [sys.executable, "-c", GIVEN_TO_ANOTHER]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as another:
        assert another.stdout is not None
        others = json.loads(another.stdout.readline())
        assert len(own) == len(set(others)) == 8
        assert not own & set(others)
        another.communicate("\n")
