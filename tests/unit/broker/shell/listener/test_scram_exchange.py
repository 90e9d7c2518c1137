import pytest
import scramp  # type: ignore[import-untyped]
from broker.core.login import LoginFailedError, Step
from broker.shell.listener.scram_exchange import ScramExchange
from tidemark.model.scram import (
    MECHANISM_NAMES,
    ScramCredential,
    ScramMechanism,
    credential_from,
    salted_password,
)

SALT, SECRET = bytes(range(32)), b"secret of the cluster"
NAMES = sorted(MECHANISM_NAMES)


def users(password: str = "pencil", mechanism: str = NAMES[0]) -> dict[str, object]:
    kind = MECHANISM_NAMES[mechanism]
    salted = salted_password(kind, password, SALT, 8_192)
    return {"alice": (credential_from(kind, salted, SALT, 8_192),)}


def an_exchange(mechanism: str = NAMES[0], **known: object) -> ScramExchange:
    found = known or users(mechanism=mechanism)
    return ScramExchange(mechanism, lambda: (found, SECRET))  # type: ignore[arg-type,return-value]


def a_client(name: str = "alice", password: str = "pencil", mechanism: str = NAMES[0]) -> object:
    return scramp.ScramClient([mechanism], name, password)


def ended(client: object, server: ScramExchange) -> Step:
    """Run a whole exchange; the client checks the server's signature."""
    first = server.step(client.get_client_first().encode())  # type: ignore[attr-defined]
    client.set_server_first(first.token.decode())  # type: ignore[attr-defined]
    last = server.step(client.get_client_final().encode())  # type: ignore[attr-defined]
    client.set_server_final(last.token.decode())  # type: ignore[attr-defined]
    return last


@pytest.mark.parametrize("mechanism", NAMES)
def test_a_user_with_the_password_gets_in_and_the_server_proves_itself(mechanism: str) -> None:
    assert ended(a_client(mechanism=mechanism), an_exchange(mechanism)).user == "alice"


def test_a_wrong_password_is_refused() -> None:
    with pytest.raises(LoginFailedError):
        ended(a_client(password="pen"), an_exchange())


def test_a_user_without_a_credential_for_the_mechanism_is_unknown() -> None:
    server = ScramExchange(NAMES[1], lambda: (users(mechanism=NAMES[0]), SECRET))  # type: ignore[arg-type,return-value]
    with pytest.raises(LoginFailedError):
        ended(a_client(mechanism=NAMES[1]), server)


def first_answer(name: str) -> dict[str, str]:
    answer = an_exchange().step(f"n,,n={name},r=abc".encode()).token.decode()
    return dict(part.split("=", 1) for part in answer.split(","))


@pytest.mark.feature("SE04")
def test_user_enumeration_an_unknown_user_is_answered_like_a_known_one() -> None:
    known, unknown = first_answer("alice"), first_answer("nobody")
    assert known.keys() == unknown.keys()
    assert (known["i"], len(known["s"])) == (unknown["i"], len(unknown["s"]))
    assert unknown["s"] == first_answer("nobody")["s"]
    with pytest.raises(LoginFailedError):
        ended(a_client("nobody"), an_exchange())


@pytest.mark.feature("SE04")
def test_user_enumeration_a_known_user_costs_the_same_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def fake(_: bytes, __: ScramMechanism, name: str) -> ScramCredential:
        made.append(name)
        return credential_from(ScramMechanism.SCRAM_SHA_256, b"x", SALT, 8_192)

    module = "broker.shell.listener.scram_exchange.unknown_user_credential"
    monkeypatch.setattr(module, fake)
    for name in ("alice", "nobody"):
        first_answer(name)
    assert made == ["alice", "nobody"]


@pytest.mark.feature("SE01")
def test_replayed_scram_proof_a_recorded_login_is_refused_by_the_next_exchange() -> None:
    client, server = scramp.ScramClient([NAMES[0]], "alice", "pencil"), an_exchange()
    first = client.get_client_first().encode()
    client.set_server_first(server.step(first).token.decode())
    final = client.get_client_final().encode()
    assert server.step(final).user == "alice"
    again = an_exchange()
    again.step(first)
    with pytest.raises(LoginFailedError, match="nonce"):
        again.step(final)


@pytest.mark.parametrize(
    "token",
    [b"", b"\xff", b"n,,n=alice", b"n,,n=alice,r=abc,tokenauth=true", b"p=tls-unique,,n=a,r=b"],
)
def test_a_message_that_is_not_scram_is_refused(token: bytes) -> None:
    with pytest.raises(LoginFailedError):
        an_exchange().step(token)
