import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from broker.core.login import LoginFailedError, Step
from broker.shell.listener.bearer_exchange import BearerExchange
from joserfc import jwt
from joserfc.jwk import RSAKey
from tidemark.model.ids import InstantMs, WallMs
from tidemark.protocol.bearer_tokens import KeySetError
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.key_set import DOCUMENT_BYTES_MAX, KeySetCache, fetch_from
from tidemark.runtime.access.oauth_config import OauthConfig
from tidemark.runtime.clock import Clock

KEY = RSAKey.generate_key(2048, {"kid": "old"})
NEW = RSAKey.generate_key(2048, {"kid": "new"})


def config(**settings: Any) -> OauthConfig:
    names = {
        "jwks_endpoint_url": "https://issuer/keys",
        "expected_issuer": "https://issuer",
        "expected_audience": "tidemark",
        **settings,
    }
    return OauthConfig(**{f"sasl_oauthbearer_{name}": value for name, value in names.items()})


class AtTime(Clock):
    """A clock that a test moves."""

    ms = 0

    def now_ms(self) -> InstantMs:
        return InstantMs(self.ms)

    def wall_ms(self) -> WallMs:
        return WallMs(self.ms)


class Provider:
    """An identity provider, whose key set is read as often as ``reads`` says."""

    def __init__(self, *keys: RSAKey) -> None:
        self.keys, self.reads, self.clock = list(keys), 0, AtTime()
        self.cache = KeySetCache(config(), self.clock, self.document)
        self.tokens = BearerCheck(self.cache, config().token_rules, self.clock)

    def document(self) -> bytes:
        self.reads += 1
        if not self.keys:
            raise KeySetError("down")
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()

    def login(self, token: bytes) -> Step:
        async def run() -> Step:
            return await BearerExchange(self.tokens).step(token).work()

        return asyncio.run(run())


def message(key: RSAKey = KEY, before: str = "n,,\x01", after: str = "\x01\x01") -> bytes:
    claims = {"iss": "https://issuer", "aud": "tidemark", "sub": "alice", "exp": 60}
    token = jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)
    return f"{before}auth=Bearer {token}{after}".encode()


@pytest.mark.feature("SE06")
@pytest.mark.parametrize(
    ("before", "after"),
    [("n,,\x01", "\x01\x01"), ("n,a=alice,\x01", "\x01\x01"), ("n,,\x01x=y\x01", "\x01z=\x01\x01")],
)
def test_a_token_opens_a_session_until_it_ends(before: str, after: str) -> None:
    assert Provider(KEY).login(message(before=before, after=after)) == (b"", "alice", 60_000)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01",
        b"\xff" * 100,
        message(before="n,a=bob,\x01"),
        message(after="\x01"),
        message(NEW),
    ],
)
def test_other_messages_are_refused(token: bytes) -> None:
    with pytest.raises(LoginFailedError):
        Provider(KEY).login(token)


def test_an_unknown_key_makes_the_set_be_read_again_but_not_too_often() -> None:
    provider = Provider(KEY)
    provider.login(message())
    provider.keys.append(NEW)
    for _ in range(3):
        with pytest.raises(LoginFailedError):
            provider.login(message(NEW))
    assert provider.reads == 1
    provider.clock.ms = 10_000
    assert provider.login(message(NEW)).user == "alice"
    assert provider.reads == 2


def test_a_provider_that_is_down_leaves_the_keys_and_is_asked_again_later() -> None:
    provider = Provider(KEY)
    provider.login(message())
    provider.keys.clear()
    provider.clock.ms = 3_600_000

    async def kept() -> int:
        return len(await provider.cache.newest())

    assert [asyncio.run(kept()) for _ in range(3)] == [1, 1, 1]
    assert provider.reads == 2


def test_a_key_set_may_be_a_file_of_a_bounded_size(tmp_path: Path) -> None:
    file = tmp_path / "keys of us.json"
    fetch = fetch_from(config(jwks_endpoint_url=file.as_uri()))
    file.write_bytes(b"{}")
    assert fetch() == b"{}"
    file.write_bytes(bytes(DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(KeySetError, match="larger than"):
        fetch()
    file.unlink()
    with pytest.raises(KeySetError, match="cannot read"):
        fetch()


@pytest.mark.parametrize(
    ("url", "allow_http"),
    [
        ("http://issuer/keys", True),
        ("http://127.0.0.1/keys", False),
        ("http://127.0.0.1.evil/keys", True),
        ("http://127.0.0.1@evil/keys", True),
        ("ftp://issuer/keys", True),
        ("file://host/keys", True),
    ],
)
def test_a_key_set_that_can_be_changed_on_its_way_is_refused(url: str, allow_http: bool) -> None:
    with pytest.raises(ValueError, match="can be changed on its way"):
        config(jwks_endpoint_url=url, jwks_endpoint_allow_http=allow_http)
