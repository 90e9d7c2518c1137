import pytest
import scramp.core  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.scram import (
    MECHANISM_NAMES,
    ScramMechanism,
    credential_from,
    salted_password,
)
from tidemark.protocol.scram_client import ScramClient, ScramRefusedError

SALT = bytes(range(16))
SHA_256, SHA_512 = ScramMechanism


def a_server(mechanism: ScramMechanism, password: str, user: str = "u") -> scramp.core.ScramServer:
    """A server of another library, whose user has the password as Kafka's tools set it."""
    salted = salted_password(mechanism, password, SALT, 4_096)
    kept = credential_from(mechanism, salted, SALT, 4_096)
    stored = (SALT, kept.stored_key, kept.server_key, 4_096)
    return scramp.ScramMechanism(mechanism.sasl_name).make_server({user: stored}.__getitem__)


def login(client: ScramClient, server: scramp.core.ScramServer) -> None:
    server.set_client_first(client.first().decode())
    server.set_client_final(client.final(server.get_server_first().encode()).decode())
    client.verify(server.get_server_final().encode())


def test_the_messages_are_those_of_the_example_in_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.final(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@given(st.sampled_from(sorted(MECHANISM_NAMES)), st.text(min_size=1, max_size=20))
def test_any_password_is_accepted_by_a_server_of_another_library(name: str, password: str) -> None:
    client = ScramClient(MECHANISM_NAMES[name], "a,b=c", password, "nonce")
    login(client, a_server(MECHANISM_NAMES[name], password, "a,b=c"))


def test_a_wrong_password_and_an_impostor_are_refused() -> None:
    with pytest.raises(scramp.ScramException):
        login(ScramClient(SHA_512, "u", "wrong", "nonce"), a_server(SHA_512, "right"))
    client = ScramClient(SHA_512, "u", "right", "nonce")
    client.final(b"r=nonceX,s=QUFB,i=4096")
    with pytest.raises(ScramRefusedError, match="impostor"):
        client.verify(b"v=" + b"A" * 88)
    with pytest.raises(ScramRefusedError, match="invalid-proof"):
        client.verify(b"e=invalid-proof")


@pytest.mark.parametrize(
    "first",
    [
        b"r=other,s=QUFB,i=4096",
        b"r=nonce,s=QUFB,i=4096",
        b"r=nonceX,s=Q,i=4096",
        b"r=nonceX,s=QUFB,i=4095",
        b"r=nonceX,s=QUFB,i=16385",
        b"r=nonceX,s=QUFB,i=999999999999999999999",
        b"r=nonceX,s=QUFB",
        b"\xff",
        b"",
    ],
)
def test_what_no_server_may_ask_for(first: bytes) -> None:
    with pytest.raises(ScramRefusedError):
        ScramClient(SHA_256, "u", "p", "nonce").final(first)
