import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.java_hash import java_hash, shard_for_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("hello", 99162322),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -(2**31)),  # the well-known string without a positive twin
        ("é", 0xE9),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two UTF-16 code units
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def plain_java_hash(text: str) -> int:
    """Slow and obvious: s[0]*31^(n-1) + ... + s[n-1], in int32."""
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    total: int = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    return (total + 2**31) % 2**32 - 2**31


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_the_hash_agrees_with_its_plain_twin(text: str) -> None:
    assert java_hash(text) == plain_java_hash(text)


def test_a_hash_without_a_positive_twin_is_shard_0() -> None:
    assert shard_for_name("polygenelubricants", 50) == 0


def test_a_negative_hash_counts_as_its_positive_twin() -> None:
    assert (java_hash("orders-copy"), shard_for_name("orders-copy", 50)) == (-1_814_268_579, 29)


@settings(max_examples=50)
@given(st.text(max_size=40), st.integers(1, 60))
def test_every_name_has_a_shard(name: str, count: int) -> None:
    assert 0 <= shard_for_name(name, count) < count
