from broker.core.batch_rules import PartitionLimits, structure_refused, timestamps_refused
from tidemark.codec.record_batch import BatchHeader
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


def test_a_time_too_far_ahead_is_refused_and_none_is_always_taken() -> None:
    late = GOOD._replace(max_timestamp=NOW + 1_001)
    refused = timestamps_refused(late, NOW, LIMITS)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_TIMESTAMP
    none = GOOD._replace(base_timestamp=-1, max_timestamp=-1)
    assert timestamps_refused(none, NOW, LIMITS) is None
