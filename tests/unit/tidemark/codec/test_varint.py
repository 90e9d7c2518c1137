"""Zig-zag varints: protobuf's published examples, round trips, and hostile bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.varint import INT64_MAX, INT64_MIN, ONE_BYTE, encode_varint, read_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (8_191, "fe7f"),
        (2_147_483_647, "feffffff0f"),
        (-2_147_483_648, "ffffffff0f"),
        (INT64_MAX, "feffffffffffffffff01"),
        (INT64_MIN, "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=3))
def test_what_was_written_is_read(value: int, before: bytes) -> None:
    encoded = encode_varint(value)
    assert read_varint(before + encoded + b"\x05", len(before)) == (
        value,
        len(before) + len(encoded),
    )


@pytest.mark.parametrize("encoded", [b"\x80" * 10 + b"\x01", b"\xff" * 9 + b"\x02"])
def test_more_than_64_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        read_varint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80\x80\x80"])
def test_the_end_of_the_data_is_noticed(encoded: bytes) -> None:
    with pytest.raises(IndexError):
        read_varint(encoded, 0)


def test_the_table_of_first_bytes_agrees() -> None:
    for byte, value in enumerate(ONE_BYTE):
        assert value is None if byte >= 0x80 else (value, 1) == read_varint(bytes([byte]), 0)
