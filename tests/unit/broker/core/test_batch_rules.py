import pytest
from broker.core.batch_rules import (
    UNTRUE_TIMESTAMP,
    PartitionLimits,
    count_refused,
    structure_refused,
    timestamps_refused,
)
from tidemark.codec.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidemark.codec.record_batch import HEADER_BYTES, BatchHeader, read_header
from tidemark.codec.records import BatchBuilder
from tidemark.model.errors import ErrorCode
from tidemark.model.topic_configs import topic_config

NOW = 1_700_000_000_000
SIZE = 100
LIMITS = PartitionLimits.of(topic_config({"message.timestamp.after.max.ms": "1000"}))
GOOD = BatchHeader(0, SIZE - 12, -1, 2, 0, 0, 2, NOW, NOW, -1, -1, -1, 3)


def test_a_good_batch_breaks_no_rule() -> None:
    assert structure_refused(GOOD, SIZE, LIMITS) is None
    assert timestamps_refused(GOOD, NOW, LIMITS) is None


def test_the_first_broken_rule_is_told() -> None:
    refused = structure_refused(GOOD._replace(magic=1, record_count=0), SIZE, LIMITS)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert "magic 2" in refused.message


def test_a_producer_assigns_no_offsets() -> None:
    for base_offset in (-1, 1, 1 << 40):
        refused = structure_refused(GOOD._replace(base_offset=base_offset), SIZE, LIMITS)
        assert refused is not None
        assert refused.error_code is ErrorCode.INVALID_RECORD
        assert "base offset" in refused.message


def test_a_time_too_far_ahead_is_refused_and_none_is_always_taken() -> None:
    late = GOOD._replace(max_timestamp=NOW + 1_001)
    refused = timestamps_refused(late, NOW, LIMITS)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_TIMESTAMP
    none = GOOD._replace(base_timestamp=-1, max_timestamp=-1)
    assert timestamps_refused(none, NOW, LIMITS) is None
    untrue = GOOD._replace(base_timestamp=NOW, max_timestamp=-1)
    assert timestamps_refused(untrue, NOW, LIMITS) is UNTRUE_TIMESTAMP


PACKED = GOOD._replace(attributes=4)


def claiming(records: int) -> BatchHeader:
    return PACKED._replace(last_offset_delta=records - 1, record_count=records)


def test_no_codec_has_more_than_eight_records_a_byte() -> None:
    most = (SIZE - HEADER_BYTES) * 8
    assert structure_refused(claiming(most), SIZE, LIMITS) is None
    refused = structure_refused(claiming(most + 1), SIZE, LIMITS)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert "8 records" in refused.message


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_the_smallest_records_compressed_best_are_far_from_that(codec: int) -> None:
    level = {GZIP: 9, ZSTD: 19}.get(codec)
    builder = BatchBuilder()
    for _ in range(30_000):
        builder.append(0, None, None)
    batch = builder.build(compression=codec, level=level)
    header = read_header(batch)
    assert header.record_count < 2 * (len(batch) - HEADER_BYTES)
    assert count_refused(header, len(batch), LIMITS) is None


def test_more_records_than_the_brokers_bound_are_too_large_so_that_clients_split_them() -> None:
    limits = PartitionLimits.of(topic_config({}), records_max=20)
    assert structure_refused(claiming(20), SIZE, limits) is None
    refused = structure_refused(claiming(21), SIZE, limits)
    assert refused is not None
    assert refused.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert "batch.records.max" in refused.message
