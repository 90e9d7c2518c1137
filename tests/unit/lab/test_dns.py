"""The lab's DNS answers as one of a real cluster does: what pods look up when they start."""

import socket
import struct

import pytest
from lab.dns import answer

ZONE = {
    "demo-rest.log.svc.cluster.local": ["10.0.0.1"],
    "demo-broker.log.svc.cluster.local": ["10.1.0.1", "10.1.0.2"],
    "demo-broker-0.demo-broker.log.svc.cluster.local": ["10.1.0.1"],
}
A, AAAA = 1, 28
NO_SUCH_NAME = 3


def question(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


def looked_up(name: str, kind: int = A) -> tuple[int, list[str]]:
    """Code and addresses of an answer."""
    asked = question(name, kind)
    answered = answer(asked, ZONE)
    number, flags, _, count, _, _ = struct.unpack_from(">HHHHHH", answered)
    assert (number, answered[12 : len(asked)]) == (7, asked[12:])
    records = answered[len(asked) :]
    assert len(records) == 16 * count
    return flags & 15, [
        socket.inet_ntoa(records[at + 12 : at + 16]) for at in range(0, len(records), 16)
    ]


@pytest.mark.parametrize("name", ZONE)
def test_a_name_has_the_addresses_of_its_pods(name: str) -> None:
    assert looked_up(name) == (0, ZONE[name])
    assert looked_up(name.upper()) == (0, ZONE[name])


def test_a_name_that_has_no_address_of_a_kind_is_not_a_missing_name() -> None:
    assert looked_up("demo-rest.log.svc.cluster.local", AAAA) == (0, [])
    assert looked_up("svc.cluster.local") == (0, [])


def test_another_name_does_not_exist() -> None:
    assert looked_up("demo-broker-3.demo-broker.log.svc.cluster.local") == (NO_SUCH_NAME, [])
    assert looked_up("localhost") == (NO_SUCH_NAME, [])
