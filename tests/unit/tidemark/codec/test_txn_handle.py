import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.txn_handle import (
    Handle,
    format_handle,
    parse_handle,
    transactional_id_of,
)


@given(st.text(min_size=1), st.integers(1, 2**62), st.integers(0, 2**62))
def test_a_handle_says_what_it_was_made_of(name: str, number: int, created_at: int) -> None:
    handle = Handle(name, number, created_at)
    assert parse_handle(format_handle(handle)) == handle
    assert transactional_id_of(format_handle(handle)) == name


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2.3", "1.2.3.", "2.1.1.a", "1.x.1.a", "1.1.-1.a", "1.²..a", f"1.{'9' * 30}.1.a"],
)
def test_other_text_is_no_handle(text: str) -> None:
    assert parse_handle(text) is None
    assert transactional_id_of(text) is None
