"""A value names its writer, and a changed byte shows."""

import pytest
from chaos.values import Name, read_value, write_value
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 10**9))
def test_a_value_reads_back_as_its_name(sequence: int) -> None:
    name = Name("p1.1", "orders-0.2", sequence)
    assert read_value(write_value(name)) == name


@given(st.integers(0, 1_000), st.data())
def test_a_flipped_byte_shows(sequence: int, data: st.DataObject) -> None:
    name = Name("p1.1", "orders-0.2", sequence)
    value = bytearray(write_value(name))
    value[data.draw(st.integers(0, len(value) - 1))] ^= 1
    assert read_value(bytes(value)) != name


@pytest.mark.parametrize("value", [b"", b"a/b", b"a/b/c ", b"a/b/-1 ", b"\xff\xfe", b"a/b/1"])
def test_what_nobody_wrote_is_nobodys(value: bytes) -> None:
    assert read_value(value) is None
