"""The column's hash against its plain twin."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec import murmur2 as plain
from tidemark_spark.sink.hashing import murmur2, partitions_of_keys

KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=30)


@settings(max_examples=60)
@given(KEYS)
def test_hashes_are_kafkas(keys: list[bytes | None]) -> None:
    hashed = murmur2(pa.array(keys, pa.binary()))
    assert hashed.tolist() == [plain.murmur2(key or b"") & 0xFFFFFFFF for key in keys]


@settings(max_examples=30)
@given(KEYS, st.integers(1, 1_000))
def test_partitions_are_kafkas(keys: list[bytes | None], count: int) -> None:
    chosen = partitions_of_keys(pa.array(keys, pa.binary()), count)
    assert chosen.tolist() == [plain.partition_for_key(key or b"", count) for key in keys]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_slice_hashes_as_its_own_array(kind: pa.DataType) -> None:
    keys = pa.array(["user-1", "user-22", None, "user-333", "x"], kind)
    assert murmur2(keys.slice(1, 3)).tolist() == murmur2(keys)[1:4].tolist()
