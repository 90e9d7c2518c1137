"""Logins by certificates over gRPC: which are noted, and how often."""

import asyncio

import pytest
from tidemark.model.authorization import PROCESS
from tidemark.protocol.audit import Login
from tidemark.runtime.access.certificate_logins import CertificateLogins
from tidemark.runtime.peers import Peer, RefusedPeerError

pytestmark = pytest.mark.feature("SE23")


class Call:
    """Context of a call, and the caller whom its certificate names; "" for one without a rule."""

    def __init__(self, port: int, principal: str) -> None:
        self._port = port
        self.principal = principal

    def peer(self) -> str:
        return f"ipv4:10.0.0.1:{self._port}"


class Certificates:
    """Check of callers who are what they say."""

    async def peer_of(self, context: Call) -> Peer:
        if not context.principal:
            raise RefusedPeerError("there is no rule")
        return Peer(context.principal)


class Counts:
    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0


class World:
    def __init__(self) -> None:
        self.noted: list[Login] = []
        self.counts = Counts()
        self.is_full = False
        self._logins = CertificateLogins(Certificates(), "GRPC", self._note, self.counts)

    def _note(self, login: Login) -> bool:
        self.noted.append(login)
        return not self.is_full

    def call(self, port: int, principal: str) -> str:
        return asyncio.run(self._logins.peer_of(Call(port, principal))).principal


ALICE = Login("alice", "10.0.0.1", "GRPC", "SSL", succeeded=True)


def test_a_connection_is_one_login_however_many_calls_it_has() -> None:
    world = World()
    for port in (1, 1, 1, 2):
        assert world.call(port, "User:alice") == "User:alice"
    assert world.noted == [ALICE, ALICE]
    assert (world.counts.succeeded, world.counts.failed) == (2, 0)


def test_two_callers_at_one_address_are_two_logins() -> None:
    """A port that another client has now."""
    world = World()
    world.call(1, "User:alice")
    world.call(1, "User:bob")
    assert [one.user for one in world.noted] == ["alice", "bob"]


def test_a_refused_certificate_is_a_failed_login_with_its_reason() -> None:
    world = World()
    with pytest.raises(RefusedPeerError, match="no rule"):
        world.call(1, "")
    reason = "there is no rule"
    assert world.noted == [Login("", "10.0.0.1", "GRPC", "SSL", succeeded=False, reason=reason)]
    assert (world.counts.succeeded, world.counts.failed) == (0, 1)


def test_a_process_of_the_cluster_is_no_client() -> None:
    world = World()
    assert world.call(1, PROCESS) == PROCESS
    assert world.noted == []


def test_a_login_that_cannot_be_noted_does_not_happen_until_it_can() -> None:
    world = World()
    world.is_full = True
    with pytest.raises(RefusedPeerError, match="audit log is full"):
        world.call(1, "User:alice")
    world.is_full = False
    assert world.call(1, "User:alice") == "User:alice"
    assert world.counts.succeeded == 1


def test_connections_that_are_known_are_bounded() -> None:
    world = World()
    for port in range(5_000):
        world.call(port, "User:alice")
    for port in (4_999, 0):
        world.call(port, "User:alice")
    assert len(world.noted) == 5_001
