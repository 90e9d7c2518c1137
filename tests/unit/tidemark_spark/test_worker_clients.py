import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tidemark_spark.worker_clients import CLIENTS_MAX, client, close_all, discard
from waiting import PATIENCE_S


class Opened:
    def __init__(self, *, fails: bool = False) -> None:
        self.closed = 0
        self.fails = fails

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise OSError("gone")


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    close_all()
    yield
    close_all()


def test_a_client_is_opened_once() -> None:
    assert client("a", Opened) is client("a", Opened)
    assert client("a", Opened) is not client("b", Opened)


def test_a_failed_client_is_replaced() -> None:
    first = client("a", lambda: Opened(fails=True))
    discard("a")
    assert first.closed == 1
    assert client("a", Opened) is not first


def test_the_one_unused_for_longest_gives_way() -> None:
    oldest, second = client(0, Opened), client(1, Opened)
    for number in range(2, CLIENTS_MAX):
        client(number, Opened)
    client(0, Opened)
    client("more", Opened)
    assert (oldest.closed, second.closed) == (0, 1)


def test_threads_that_open_the_same_client_at_once_share_one() -> None:
    together = threading.Barrier(2, timeout=PATIENCE_S)
    opened: list[Opened] = []

    def slowly() -> Opened:
        mine = Opened()
        opened.append(mine)
        together.wait()
        return mine

    with ThreadPoolExecutor(2) as threads:
        used = list(threads.map(lambda _: client("a", slowly), range(2)))
    assert used[0] is used[1]
    close_all()
    assert [each.closed for each in opened] == [1, 1]


def test_a_forked_process_opens_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = client("a", Opened)
    monkeypatch.setattr(os, "getpid", os.getppid)
    assert client("a", Opened) is not parents
    assert parents.closed == 0
