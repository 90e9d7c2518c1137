import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.cli.debug.redact import REMOVED, is_secret, text_without_secrets, without_secrets

NAMES = ("ssl.keystore.password", "sasl.jaas.config", "api-key", "client_secret", "auth.token")


@pytest.mark.feature("AD64")
@given(st.sampled_from(NAMES), st.text(min_size=1, alphabet="abcdef0123456789-_."))
def test_no_value_of_a_secret_name_is_left(name: str, value: str) -> None:
    secret = f"S3CR3T{value}"
    found = without_secrets({"a": [{name: secret}], "text": f"x {name}={secret} y"})
    assert secret not in repr(found)
    assert name in repr(found)


@pytest.mark.feature("AD64")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('password="a b" user=x', f"password={REMOVED} user=x"),
        ("zk://user:pw@host:2181/x", f"zk://user:{REMOVED}@host:2181/x"),
        ("{'token': 'abc', 'n': 1}", f"{{'token': {REMOVED}, 'n': 1}}"),
        ("a -----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY----- b", f"a {REMOVED} b"),
        ("a -----BEGIN RSA PRIVATE KEY-----\ncut off", f"a {REMOVED}"),
        ("log.retention.ms=1 offsets.topic=2", "log.retention.ms=1 offsets.topic=2"),
    ],
)
def test_a_text_keeps_all_but_its_secrets(text: str, kept: str) -> None:
    assert text_without_secrets(text) == kept


def test_what_is_empty_is_shown_to_be_empty() -> None:
    assert without_secrets({"password": "", "token": None}) == {"password": "", "token": None}


@pytest.mark.parametrize("name", ["log.dirs", "compression.type", "group.id", "offset"])
def test_an_ordinary_name_is_no_secret(name: str) -> None:
    assert not is_secret(name)
