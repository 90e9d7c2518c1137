"""The znodes that a process announces to its supervisor."""

import pytest
from tidemark.runtime import supervised
from tidemark.runtime.witness import ProcessZnodes
from tidemark.runtime.zk_access import ZkAccess

ZNODES = ProcessZnodes(
    "zookeeper:2181/tidemark",
    "/brokers/live/1-aa",
    "/brokers/ended/1-aa",
    access=ZkAccess(has_tls=True, ca="/ca.pem", digest_file="/digest", sets_acls=True),
)


def test_znodes_are_read_as_they_were_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    with supervised.make_file() as file:
        monkeypatch.setenv(supervised.DESCRIPTOR_VARIABLE, str(file.fileno()))
        supervised.announce(ProcessZnodes("elsewhere/" + "x" * 1_000, "/one"))
        supervised.announce(ZNODES)
        assert supervised.read(file.fileno()) == ZNODES


def test_names_that_are_too_long_are_as_if_nothing_was_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with supervised.make_file() as file:
        monkeypatch.setenv(supervised.DESCRIPTOR_VARIABLE, str(file.fileno()))
        supervised.announce(ZNODES._replace(access=ZkAccess(digest_file="/" + "x" * 5_000)))
        assert supervised.read(file.fileno()) is None


def test_a_process_that_announced_nothing_left_nothing() -> None:
    with supervised.make_file() as file:
        assert supervised.read(file.fileno()) is None


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"znode": 1, "more": 2}'])
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with supervised.make_file() as file:
        file.write(content)
        with pytest.raises(ValueError, match=r"\S"):
            supervised.read(file.fileno())


def test_without_a_supervisor_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(supervised.DESCRIPTOR_VARIABLE, raising=False)
    supervised.announce(ZNODES)
