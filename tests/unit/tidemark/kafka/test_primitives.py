"""The wire's primitive types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.kafka import primitives as wire
from tidemark.kafka.primitives import COMPACT, PLAIN, Encoding, MalformedRequestError

ENCODINGS = pytest.mark.parametrize("encoding", [PLAIN, COMPACT], ids=["plain", "compact"])


def plain_uvarint(value: int) -> bytes:
    """Slow and obvious: seven bits a byte, lowest first, the top bit on all but the last."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


@given(st.integers(0, wire.UINT32_MAX))
def test_a_varint_agrees_with_its_plain_twin(value: int) -> None:
    encoded = wire.uvarint(value)
    assert encoded == plain_uvarint(value)
    assert wire.read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize("power", range(33))
def test_a_varint_is_right_at_every_power_of_two(power: int) -> None:
    for value in ((1 << power) - 1, min(1 << power, wire.UINT32_MAX)):
        assert wire.uvarint(value) == plain_uvarint(value)


@pytest.mark.parametrize("hex_bytes", ["8080808080", "808080808001", "ffffffff7f", "ffffffff10"])
def test_a_varint_beyond_32_bits_is_refused(hex_bytes: str) -> None:
    with pytest.raises(MalformedRequestError):
        wire.read_uvarint(memoryview(bytes.fromhex(hex_bytes)), 0)


@ENCODINGS
@pytest.mark.parametrize("text", ["", "a", "tidemark" * 40, "ü" * 200, None])
def test_a_string_survives(encoding: Encoding, text: str | None) -> None:
    encoded = encoding.string(text)
    assert encoding.read_nullable_string(memoryview(encoded), 0) == (text, len(encoded))
    if text is None:
        with pytest.raises(MalformedRequestError):
            encoding.read_string(memoryview(encoded), 0)


@ENCODINGS
def test_a_string_cut_short_is_refused(encoding: Encoding) -> None:
    encoded = encoding.string("orders")
    for end in range(2, len(encoded)):
        with pytest.raises(MalformedRequestError):
            encoding.read_string(memoryview(encoded)[:end], 0)


@ENCODINGS
@pytest.mark.parametrize("values", [[], [1], [-(1 << 31), (1 << 31) - 1], list(range(300))])
def test_an_int32_array_survives(encoding: Encoding, values: list[int]) -> None:
    encoded = encoding.int32s(values)
    assert encoding.read_int32s(memoryview(encoded), 0) == (values, len(encoded))
    if values:
        with pytest.raises(MalformedRequestError):
            encoding.read_int32s(memoryview(encoded)[:-1], 0)


@ENCODINGS
def test_bytes_are_a_view_and_not_a_copy(encoding: Encoding) -> None:
    frame = bytearray(encoding.array_length(3) + b"abc")
    view, _ = encoding.read_nullable_view(memoryview(frame), 0)
    assert view is not None
    frame[-1:] = b"d"
    assert bytes(view) == b"abd"


@ENCODINGS
def test_a_count_beyond_the_bytes_that_remain_is_refused(encoding: Encoding) -> None:
    with pytest.raises(MalformedRequestError, match="remain"):
        encoding.read_count(memoryview(encoding.array_length(5) + b"1234"), 0)


@pytest.mark.parametrize("length", [-2, -(1 << 31)])
def test_a_negative_plain_length_is_refused(length: int) -> None:
    encoded = memoryview(wire.INT32.pack(length) + bytes(8))
    for read in (PLAIN.read_count, PLAIN.read_nullable_count, PLAIN.read_nullable_view):
        with pytest.raises(MalformedRequestError):
            read(encoded, 0)


def test_tags_survive_and_are_skipped() -> None:
    encoded = wire.tags_bytes([(0, b"zero"), (7, b""), (300, b"x" * 200)])
    fields, end = wire.read_tags(memoryview(encoded), 0)
    assert {tag: bytes(value) for tag, value in fields.items()} == {
        0: b"zero",
        7: b"",
        300: b"x" * 200,
    }
    assert wire.skip_tags(memoryview(encoded), 0) == end == len(encoded)


@pytest.mark.parametrize("hex_bytes", ["0200000000", "02010000 00", "01 00 05 00"])
def test_tags_out_of_order_or_cut_short_are_refused(hex_bytes: str) -> None:
    with pytest.raises(MalformedRequestError):
        wire.read_tags(memoryview(bytes.fromhex(hex_bytes)), 0)


def test_a_plain_string_of_more_than_int16_bytes_is_our_mistake() -> None:
    with pytest.raises(OverflowError):
        wire.string_bytes("x" * 32_768)
