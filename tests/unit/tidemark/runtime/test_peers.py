"""Principals of gRPC callers, and who of them may call."""

import pytest
import trustme
from tidemark.model.authorization import PROCESS
from tidemark.runtime.peers import PEER, Peers, RefusedPeerError

RULES = "RULE:^CN=([a-z]+),.*$/$1/"
AUTHORITY = trustme.CA()


def certificate(name: str) -> bytes:
    issued = AUTHORITY.issue_cert("host", common_name=name, organization_name="Acme")
    return issued.cert_chain_pems[0].bytes()


def peers(*, takes_clients: bool) -> Peers:
    return Peers(RULES, frozenset({"User:node"}), takes_clients=takes_clients)


@pytest.mark.feature("SE09")
@pytest.mark.parametrize("takes_clients", [False, True])
def test_a_process_of_the_cluster_is_one_by_its_certificate(*, takes_clients: bool) -> None:
    assert peers(takes_clients=takes_clients).principal_of(certificate("node")) == PROCESS


@pytest.mark.feature("SE09")
def test_another_certificate_is_a_client_where_there_are_clients() -> None:
    assert peers(takes_clients=True).principal_of(certificate("alice")) == "User:alice"


@pytest.mark.feature("SE09")
def test_another_certificate_gets_nowhere_else() -> None:
    with pytest.raises(RefusedPeerError, match="User:alice is no process of the cluster"):
        peers(takes_clients=False).principal_of(certificate("alice"))


def test_a_certificate_without_a_rule_gets_nowhere() -> None:
    with pytest.raises(RefusedPeerError, match="has no rule for"):
        peers(takes_clients=True).principal_of(certificate("A1"))


def test_without_mutual_tls_every_caller_is_a_process() -> None:
    assert PEER.get() == PROCESS
