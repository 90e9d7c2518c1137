"""One transaction over a session of its own, against a real ZooKeeper."""

import socket
import threading
from collections.abc import Iterator

import pytest
from e2e.zookeeper import RunningZookeeper, running_zookeeper
from free_ports import free_port
from kazoo.client import KazooClient
from tidemark.runtime.zk_brief import transact
from tidemark.runtime.zk_calls import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
    SetData,
    UnknownOutcomeError,
    ZkError,
    ZkUnavailableError,
)
from waiting import PATIENCE_S


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZookeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def client(zookeeper: RunningZookeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect)
    client.start()
    client.delete("/chroot", recursive=True)
    client.create("/chroot")
    client.create("/chroot/a", b"a", ephemeral=True)
    yield client
    client.stop()
    client.close()


def test_all_operations_are_performed_below_the_chroot(
    zookeeper: RunningZookeeper, client: KazooClient
) -> None:
    ops: list[Op] = [Check("/a", 0), SetData("/a", b"b", 0), Create("/b", b"ended"), Delete("/a")]
    transact(f"{zookeeper.connect}/chroot", ops, timeout_s=PATIENCE_S)
    assert client.get_children("/chroot") == ["b"]
    assert client.get("/chroot/b")[0] == b"ended"


def test_its_session_is_closed(zookeeper: RunningZookeeper, client: KazooClient) -> None:
    ops = [Create("/chroot/mine", b"", ephemeral=True)]
    transact(zookeeper.connect, ops, timeout_s=PATIENCE_S)
    while client.exists("/chroot/mine"):
        client.sync("/chroot")


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Delete("/chroot/none"), NoNodeError),
        (Check("/chroot/a", 7), BadVersionError),
        (Create("/chroot/a", b""), NodeExistsError),
        (Delete("/chroot"), ZkError),
    ],
)
def test_none_is_performed_if_one_fails(
    zookeeper: RunningZookeeper,
    client: KazooClient,
    failing: Delete | Check | Create,
    error: type[ZkError],
) -> None:
    ops = [Create("/chroot/b", b""), failing, Delete("/chroot/a")]
    with pytest.raises(error):
        transact(zookeeper.connect, ops, timeout_s=PATIENCE_S)
    assert client.get_children("/chroot") == ["a"]


def test_the_next_server_is_asked_if_one_does_not_answer(
    zookeeper: RunningZookeeper, client: KazooClient
) -> None:
    silent = f"127.0.0.1:{free_port()}"
    connect = f"{silent}, {zookeeper.connect},{silent}/chroot"
    transact(connect, [Delete("/a")], timeout_s=PATIENCE_S)
    assert client.get_children("/chroot") == []


def test_no_server_at_all() -> None:
    with pytest.raises(ZkUnavailableError, match="no ZooKeeper server of"):
        transact(f"127.0.0.1:{free_port()}/chroot", [Delete("/a")], timeout_s=PATIENCE_S)


def test_a_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_begin_a_session_and_hang_up, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(UnknownOutcomeError):
            transact(f"127.0.0.1:{port}", [Delete("/a")], timeout_s=PATIENCE_S)
        thread.join()


@pytest.mark.parametrize("answer", [bytes(3), bytes(12) + (-999).to_bytes(4, "big", signed=True)])
def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_begin_a_session_and_hang_up, args=(server, answer))
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(UnknownOutcomeError):
            transact(f"127.0.0.1:{port}", [Delete("/a")], timeout_s=PATIENCE_S)
        thread.join()


def _begin_a_session_and_hang_up(server: socket.socket, last: bytes = b"") -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1_024)
        answer = bytes(4) + (4_000).to_bytes(4, "big") + (1).to_bytes(8, "big") + bytes(21)
        connection.sendall(len(answer).to_bytes(4, "big") + answer)
        connection.recv(1_024)
        if last:
            connection.sendall(len(last).to_bytes(4, "big") + last)
