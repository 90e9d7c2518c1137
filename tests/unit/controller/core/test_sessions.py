"""Sessions: cookies that nobody can make, change, or use after the user has changed."""

import pytest
from controller.core.sessions import (
    Session,
    fingerprint,
    form_token,
    is_form_token,
    make_cookie,
    read_cookie,
)
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.scram import ScramMechanism, credential_from

pytestmark = pytest.mark.feature("SE12")

SECRET = b"of the cluster"
PRESENT = b"fingerprint"
NOW_MS = 1_000
SESSION = Session("alice/eu <1>", NOW_MS + 1)
names = st.text(min_size=1, max_size=60).filter(lambda text: len(text.encode()) <= 255)


def encodable(text: str) -> bool:
    return text.isprintable() or not any(0xD800 <= ord(one) <= 0xDFFF for one in text)


@given(names.filter(encodable), st.integers(0, 2**52))
def test_a_cookie_is_read_as_it_was_made(user: str, expires_ms: int) -> None:
    session = Session(user, expires_ms)
    cookie = make_cookie(SECRET, session, PRESENT)
    assert read_cookie(SECRET, cookie, expires_ms - 1, lambda _: PRESENT) == session
    assert read_cookie(SECRET, cookie, expires_ms, lambda _: PRESENT) is None


@given(st.data())
def test_a_changed_cookie_is_no_session(data: st.DataObject) -> None:
    cookie = make_cookie(SECRET, SESSION, PRESENT)
    at = data.draw(st.integers(0, len(cookie) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda one: one != cookie[at]))
    changed = cookie[:at] + other + cookie[at + 1 :]
    assert read_cookie(SECRET, changed, NOW_MS, lambda _: PRESENT) is None


@given(st.text(max_size=300))
def test_other_text_is_no_session(text: str) -> None:
    assert read_cookie(SECRET, text, NOW_MS, lambda _: PRESENT) is None


def test_it_ends_with_the_users_password_and_with_the_user() -> None:
    cookie = make_cookie(SECRET, SESSION, PRESENT)
    assert read_cookie(SECRET, cookie, NOW_MS, lambda _: b"another") is None
    assert read_cookie(SECRET, cookie, NOW_MS, lambda _: None) is None


def test_another_cluster_does_not_take_it_nor_one_without_a_secret() -> None:
    cookie = make_cookie(SECRET, SESSION, PRESENT)
    assert read_cookie(b"another", cookie, NOW_MS, lambda _: PRESENT) is None
    own = make_cookie(b"", SESSION, PRESENT)
    assert read_cookie(b"", own, NOW_MS, lambda _: PRESENT) is None


def test_a_fingerprint_is_that_of_the_credentials() -> None:
    def credential(salted: bytes) -> bytes | None:
        made = credential_from(ScramMechanism.SCRAM_SHA_256, salted, b"salt" * 4, 4_096)
        return fingerprint((made,))

    assert credential(b"one") == credential(b"one")
    assert credential(b"one") != credential(b"two")
    assert fingerprint(()) is None


def test_a_form_token_is_that_of_its_session() -> None:
    token = form_token(SECRET, "cookie")
    assert is_form_token(SECRET, "cookie", token)
    assert not is_form_token(SECRET, "another", token)
    assert not is_form_token(SECRET, "cookie", "")
    assert not is_form_token(SECRET, "cookie", "é")
