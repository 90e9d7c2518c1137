import base64

import pytest
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.scram import (
    ScramCredential,
    ScramMechanism,
    check_strength,
    check_user_name,
    credential_from,
    password_fits,
    salted_password,
    unknown_user_credential,
)

SHA_256, SHA_512 = ScramMechanism


def test_the_keys_are_those_of_the_example_in_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(SHA_256, "pencil", salt, 4_096)
    made = credential_from(SHA_256, salted, salt, 4_096)
    assert base64.b64encode(made.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(made.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_the_names_are_those_of_sasl_and_hashlib() -> None:
    assert [one.sasl_name for one in ScramMechanism] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [one.hash_name for one in ScramMechanism] == ["sha256", "sha512"]


def test_a_credential_is_printed_without_its_secrets() -> None:
    shown = repr(credential_from(SHA_512, b"salted", b"the salt", 8_192))
    assert shown == "ScramCredential(mechanism=<ScramMechanism.SCRAM_SHA_512: 2>, iterations=8192)"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_an_unknown_user_looks_like_a_known_one(mechanism: ScramMechanism) -> None:
    made = unknown_user_credential(b"secret", mechanism, "nobody")
    assert made == unknown_user_credential(b"secret", mechanism, "nobody")
    assert made.salt != unknown_user_credential(b"secret", mechanism, "no one").salt
    assert made.salt != unknown_user_credential(b"another", mechanism, "nobody").salt
    real = credential_from(mechanism, b"salted", bytes(32), 8_192)
    sizes = [(len(one.salt), len(one.stored_key), one.iterations) for one in (made, real)]
    assert sizes[0] == sizes[1]


def stored(password: str, *mechanisms: ScramMechanism) -> tuple[ScramCredential, ...]:
    salt = bytes(12)
    salted = [(one, salted_password(one, password, salt, 4_096)) for one in mechanisms]
    return tuple(credential_from(one, each, salt, 4_096) for one, each in salted)


@pytest.mark.parametrize("mechanisms", [(SHA_256,), (SHA_512,), (SHA_256, SHA_512)])
def test_a_password_fits_its_user_and_nobody_else(mechanisms: tuple[ScramMechanism, ...]) -> None:
    users = {"alice": stored("pencil", *mechanisms), "bob": stored("p\u00e4n", *mechanisms)}
    found = {
        (name, password): password_fits(users, b"secret", name, password)
        for name in ("alice", "bob", "nobody", "")
        for password in ("pencil", "p\u00e4n", "", "Pencil")
    }
    assert [pair for pair, fits in found.items() if fits] == [
        ("alice", "pencil"),
        ("bob", "p\u00e4n"),
    ]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "\u00e4" * 128])
def test_a_name_that_no_user_may_have(name: str) -> None:
    with pytest.raises(TidemarkError) as refused:
        check_user_name(name)
    assert refused.value.code is ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.mark.parametrize(
    ("iterations", "salt_bytes"), [(4_095, 12), (16_385, 12), (4_096, 11), (4_096, 1_025)]
)
def test_iterations_and_salts_out_of_bounds(iterations: int, salt_bytes: int) -> None:
    check_strength(4_096, bytes(12))
    with pytest.raises(TidemarkError):
        check_strength(iterations, bytes(salt_bytes))
