"""Fields in the old and the flexible encoding, and bytes that are none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.coordinator_fields import (
    DamagedRecordError,
    FieldReader,
    FieldWriter,
    NewerRecordError,
    read_version,
    unsigned_varint,
)


@pytest.mark.parametrize("flexible", [True, False])
@settings(max_examples=25, deadline=None)
@given(text=st.none() | st.text(), octets=st.binary(), numbers=st.lists(st.integers(-9, 9)))
def test_fields_come_back(
    flexible: bool, text: str | None, octets: bytes, numbers: list[int]
) -> None:
    writer = FieldWriter(3, flexible=flexible)
    writer.string(text)
    writer.octets(octets)
    writer.array(numbers, writer.int32)
    writer.tags()
    reader = FieldReader(writer.done(), flexible=flexible)
    assert reader.int16() == 3
    assert reader.nullable_string() == text
    assert reader.octets() == octets
    assert reader.array(reader.int32) == tuple(numbers)
    assert reader.tags() == {}


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02")]
)
def test_unsigned_varints(number: int, encoded: str) -> None:
    assert unsigned_varint(number) == bytes.fromhex(encoded)


def test_tags_are_ordered_and_unknown_ones_are_carried() -> None:
    writer = FieldWriter(0, flexible=True)
    writer.tags({9: b"nine", 1: b"one"})
    assert writer.done() == b"\0\0" + b"\2" + b"\1\3one" + b"\x09\4nine"
    reader = FieldReader(writer.done(), position=2, flexible=True)
    assert reader.tags() == {1: b"one", 9: b"nine"}


def test_the_old_encoding_has_no_tags() -> None:
    with pytest.raises(AssertionError):
        FieldWriter(0).tags({1: b""})


@pytest.mark.parametrize(
    ("data", "flexible"), [("00", True), ("ffff", False)], ids=["flexible", "old"]
)
def test_null_is_no_string(data: str, flexible: bool) -> None:
    with pytest.raises(DamagedRecordError, match="null"):
        FieldReader(bytes.fromhex(data), flexible=flexible).string()


@pytest.mark.parametrize(
    ("data", "flexible"),
    [
        ("7fffffff", False),  # a count beyond the bytes
        ("ffffffff", False),  # a null array
        ("ffffffff7f", True),
        ("ffffffffffff", True),  # a varint that does not end
        ("", True),
    ],
)
def test_impossible_counts_are_damage(data: str, flexible: bool) -> None:
    reader = FieldReader(bytes.fromhex(data), flexible=flexible)
    with pytest.raises(DamagedRecordError):
        reader.array(reader.int8)


def test_bytes_may_be_null_in_the_old_encoding() -> None:
    reader = FieldReader(bytes.fromhex("ffffffff" + "0000000261620000007f"))
    assert (reader.nullable_octets(), reader.nullable_octets()) == (None, b"ab")
    with pytest.raises(DamagedRecordError):
        reader.nullable_octets()


def test_a_string_that_is_no_text_is_damage() -> None:
    with pytest.raises(DamagedRecordError, match="UTF-8"):
        FieldReader(b"\0\1\xff").string()


def test_versions_beyond_the_newest_are_refused_by_name() -> None:
    with pytest.raises(NewerRecordError, match="Thing of version 2; this release reads up to 1"):
        read_version(FieldReader(b"\0\2"), newest=1, what="Thing")
    with pytest.raises(DamagedRecordError):
        read_version(FieldReader(b"\xff\xff"), newest=1, what="Thing")
