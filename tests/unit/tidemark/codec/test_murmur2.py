"""murmur2: the values that Kafka's own test pins, and a plain twin that works byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.murmur2 import murmur2, partition_for_key


@pytest.mark.feature("C02", "C03")
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_values_of_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def plain_murmur2(data: bytes) -> int:
    """As the algorithm is usually written down."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - 3, 4):
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * multiplier & mask
        k ^= k >> 24
        h = (h * multiplier & mask) ^ (k * multiplier & mask)
    tail = data[len(data) & ~3 :]
    for index in reversed(range(len(tail))):
        h ^= tail[index] << 8 * index
    if tail:
        h = h * multiplier & mask
    h = (h ^ h >> 13) * multiplier & mask
    h ^= h >> 15
    return h if h < 1 << 31 else h - (1 << 32)


@given(st.binary(max_size=64))
def test_agrees_with_its_plain_twin(key: bytes) -> None:
    assert murmur2(key) == plain_murmur2(key)


@given(st.binary(max_size=16), st.integers(1, 1_000))
def test_a_partition_is_one_of_those_there_are(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) in range(count)
