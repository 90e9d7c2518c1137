import json
import socket
from pathlib import Path

import pytest
from tidemark.cli.dev.layout import (
    Layout,
    Ports,
    Shape,
    port_is_free,
    txn_coordinators_default,
)
from tidemark.cli.failure import CommandError


def test_every_process_has_its_own_ports() -> None:
    base = Ports.from_base(20_000)
    members = Layout(Path("d"), Shape(brokers=9, controllers=9, ports=base, txn_coordinators=9))
    ports = [port for member in members.members() for port in member.ports.values()]
    assert len(ports) == len(set(ports))
    assert all(20_000 <= port < 20_100 for port in ports)


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


def test_txn_coordinators_come_last_and_keep_their_own_ports() -> None:
    layout = Layout(Path("d"), Shape(txn_coordinators=2))
    assert [member.name for member in layout.members()][-2:] == [
        "txn-coordinator-1",
        "txn-coordinator-2",
    ]
    last = layout.member("txn-coordinator-2")
    assert (last.module, last.number) == ("txn_coordinator", 2)
    assert last.ports == {"grpc": 19_191, "ops": 9493}


def test_a_shape_that_an_earlier_release_kept_gets_the_default(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    Shape(brokers=2).write(path)
    content = json.loads(path.read_text())
    del content["txn_coordinators"], content["ports"]["txn_grpc"], content["ports"]["txn_ops"]
    path.write_text(json.dumps(content))
    kept = Shape.read(path)
    assert kept == Shape(brokers=2, txn_coordinators=txn_coordinators_default())


def test_a_taken_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not port_is_free(server.getsockname()[1])


def test_free_ports_are_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    layout = Layout.on_free_ports(tmp_path)
    assert 20_000 <= layout.shape.ports.zookeeper < 32_000
