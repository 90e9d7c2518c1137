"""Tokens of an identity provider, and attacks on their check by name."""

import base64
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey
from tidemark.protocol.bearer_tokens import (
    ALGORITHMS,
    TOKEN_BYTES_MAX,
    BearerError,
    KeySetError,
    TokenRules,
    UnknownKeyError,
    read_keys,
    verify,
)

NOW_S = 1_000_000
RULES = TokenRules("https://issuer", ("tidemark", "other"))
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
CLAIMS = {"iss": "https://issuer", "aud": "tidemark", "sub": "alice", "exp": NOW_S + 60}


def document(*keys: Any) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


KEYS = read_keys(document(RSA, EC, ED))


def signed(claims: dict[str, Any] | None = None, *, key: Any = RSA, **header: Any) -> str:
    head = {"alg": "RS256", "kid": key.kid, **header}
    made = CLAIMS | (claims or {})
    present = {name: value for name, value in made.items() if value is not None}
    return jwt.encode(head, present, key, algorithms=[head["alg"]])


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "PS256"), (EC, "ES256"), (ED, "Ed25519")])
@pytest.mark.feature("SE06")
def test_a_token_names_its_principal_and_its_end(key: Any, algorithm: str) -> None:
    rules = RULES._replace(algorithms=ALGORITHMS)
    token = signed(key=key, alg=algorithm)
    assert verify(token, KEYS, rules, NOW_S) == ("alice", NOW_S + 60)


def test_the_principal_may_be_another_claim_and_the_audience_one_of_several() -> None:
    token = signed({"aud": ["x", "other"], "client_id": "app"})
    assert verify(token, KEYS, RULES._replace(principal_claim="client_id"), NOW_S).user == "app"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil"},
        {"iss": None},
        {"aud": "somebody else"},
        {"aud": ["somebody", "else"]},
        {"aud": None},
        {"exp": NOW_S - 30},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"nbf": NOW_S + 31},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
    ],
)
@pytest.mark.feature("SE06")
def test_expired_early_and_foreign_tokens_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(BearerError):
        verify(signed(claims), KEYS, RULES, NOW_S)


@pytest.mark.parametrize("claims", [{"exp": NOW_S - 29}, {"nbf": NOW_S + 30}])
def test_clocks_may_differ_a_little(claims: dict[str, Any]) -> None:
    assert verify(signed(claims), KEYS, RULES, NOW_S).user == "alice"


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 5])
@pytest.mark.feature("SE06")
def test_attack_alg_none(alg: object) -> None:
    for signature in ("", signed().rpartition(".")[2]):
        token = f"{part({'alg': alg, 'kid': 'rsa'})}.{part(CLAIMS)}.{signature}"
        with pytest.raises(BearerError, match="is not allowed"):
            verify(token, KEYS, RULES, NOW_S)


@pytest.mark.feature("SE06")
def test_attack_key_confusion_the_public_key_as_a_shared_secret() -> None:
    for secret in (RSA.as_pem(private=False), json.dumps(RSA.as_dict(private=False)).encode()):
        message = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(CLAIMS)}"
        proof = base64.urlsafe_b64encode(hmac.digest(secret, message.encode(), "sha256"))
        with pytest.raises(BearerError, match="HS256' is not allowed"):
            verify(f"{message}.{proof.decode().rstrip('=')}", KEYS, RULES, NOW_S)


@pytest.mark.feature("SE06")
def test_attack_a_key_of_the_attacker() -> None:
    own = RSAKey.generate_key(2048, {"kid": "rsa"})
    for header in ({}, {"jwk": own.as_dict(private=False)}, {"jku": "https://evil/keys"}):
        with pytest.raises(BearerError):
            verify(signed(key=own, **header), KEYS, RULES, NOW_S)
    with pytest.raises(UnknownKeyError):
        verify(signed(kid="unknown"), KEYS, RULES, NOW_S)


@pytest.mark.feature("SE06")
def test_attack_oversized_tokens_are_refused_unread() -> None:
    """Even one that is valid in every other way."""
    for size, is_taken in ((TOKEN_BYTES_MAX // 2, True), (TOKEN_BYTES_MAX, False)):
        token = signed({"more": "x" * size})
        if is_taken:
            assert verify(token, KEYS, RULES, NOW_S).user == "alice"
            continue
        with pytest.raises(BearerError, match="bytes"):
            verify(token, KEYS, RULES, NOW_S)


@pytest.mark.feature("SE06")
def test_attack_oversized_and_nested_tokens() -> None:
    nested = base64.urlsafe_b64encode(b"[" * 10_000).rstrip(b"=").decode()
    for token in ("x" * (TOKEN_BYTES_MAX + 1), f"{nested}.{nested}.x", f"{part({})}..", "", ".."):
        with pytest.raises(BearerError):
            verify(token, KEYS, RULES, NOW_S)


@given(st.data())
def test_a_changed_token_is_refused(data: st.DataObject) -> None:
    token = data.draw(st.just(signed()))
    place = data.draw(st.integers(0, len(token) - 2))
    other = data.draw(st.sampled_from("ABCxyz019-_.").filter(lambda one: one != token[place]))
    with pytest.raises(BearerError):
        verify(token[:place] + other + token[place + 1 :], KEYS, RULES, NOW_S)


def test_shared_secrets_and_unknown_kinds_of_keys_are_left_out() -> None:
    keys = [{"kty": "oct", "k": "AAAA", "kid": "a"}, {"kty": "new", "kid": "b"}]
    both = json.dumps({"keys": [*keys, RSA.as_dict(private=False)]})
    assert set(read_keys(both.encode())) == {"rsa"}
    with pytest.raises(KeySetError, match="no public key"):
        read_keys(json.dumps({"keys": keys[:1]}).encode())


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": 5}', b'{"keys": [5]}', b"[" * 99_999]
)
def test_what_is_no_key_set(text: bytes) -> None:
    with pytest.raises(KeySetError):
        read_keys(text)
