"""Keys of batches: hashes from a worker, kept while the window has the batch."""

import pytest
from broker.core.share.acquisition import LogBatch, LogRead
from broker.core.share.batch_keys import RETRY_MS, KeyCache, Keys, key_hash, key_hashes
from tidemark.codec.record_batch import read_header, write_header
from tidemark.codec.records import RecordsError, build_batch
from tidemark.model.ids import InstantMs, Offset
from unit.broker.core.share.share_worlds import log_batch

NOW = InstantMs(10)


def keys_of(first: int, last: int) -> Keys:
    return {Offset(number): number for number in range(first, last + 1)}


def read_of(*batches: LogBatch, end: int) -> LogRead:
    return LogRead(batches[0].first_offset, Offset(end), batches)


def test_keys_are_hashed_and_records_without_one_have_none() -> None:
    records = [(0, b"a", b"1", ()), (0, None, b"2", ()), (0, b"a", b"3", ()), (0, b"", b"4", ())]
    hashes = key_hashes(build_batch(records, base_offset=7))
    assert list(hashes) == [7, 8, 9, 10]
    assert hashes[Offset(7)] == hashes[Offset(9)] == key_hash(b"a")
    assert hashes[Offset(8)] is None
    assert hashes[Offset(10)] == key_hash(b"") != key_hash(b"a")


def test_a_hash_is_the_same_everywhere() -> None:
    assert key_hash(b"order-7") == 0xE9B52CD6FF54F2F1


def test_a_batch_whose_offsets_contradict_its_header_is_refused() -> None:
    batch = build_batch([(0, b"a", b"1", ()), (0, b"b", b"2", ())])
    header = read_header(batch)._replace(last_offset_delta=0)
    with pytest.raises(RecordsError, match="the last one is 0"):
        key_hashes(write_header(header) + batch[61:])


def test_a_read_ends_before_the_first_batch_without_keys() -> None:
    cache = KeyCache()
    known, marker, unknown = log_batch(0, 4), log_batch(5, 5, has_records=False), log_batch(6, 9)
    cache.learn(known, keys_of(0, 4))
    found = cache.cut(read_of(known, marker, unknown, end=10))
    assert found is not None
    assert (found.end, [batch.keys for batch in found.batches]) == (6, [keys_of(0, 4), None])
    cache.learn(unknown, keys_of(6, 9))
    found = cache.cut(read_of(known, marker, unknown, end=12))
    assert found is not None
    assert (found.end, len(found.batches)) == (12, 3)


def test_nothing_is_left_of_a_read_whose_first_batch_has_no_keys() -> None:
    assert KeyCache().cut(read_of(log_batch(3, 9), end=10)) is None


def test_a_batch_is_walked_once_and_again_after_a_failure() -> None:
    cache, batch = KeyCache(), log_batch(0, 4)
    assert cache.begin(batch, NOW)
    assert not cache.begin(batch, NOW), "it is at a worker"
    cache.fail(batch, NOW)
    assert cache.has_failed(batch)
    assert not cache.begin(batch, NOW)
    assert cache.begin(batch, InstantMs(NOW + RETRY_MS))
    cache.learn(batch, keys_of(0, 4))
    assert not cache.begin(batch, InstantMs(NOW + RETRY_MS)), "it is known"
    assert not cache.begin(log_batch(5, 5, has_records=False), NOW)


def test_batches_behind_the_window_are_dropped() -> None:
    cache = KeyCache()
    for first in (0, 10, 20):
        cache.learn(log_batch(first, first + 9), keys_of(first, first + 9))
    cache.drop_below(Offset(15))
    assert len(cache) == 2
    assert cache.known(log_batch(0, 9)) is None
