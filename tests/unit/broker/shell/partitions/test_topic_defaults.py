import pytest
from broker.shell.partitions.topic_defaults import effective
from tidemark.model.ids import TopicId
from tidemark.model.metadata import TopicImage

KEPT = {"retention.ms": "-1", "flush": "group", "min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("of_topic", "of_broker", "lags"),
    [
        ({"max.compaction.lag.ms": "1000"}, {"min.compaction.lag.ms": "5000"}, (0, 1_000)),
        ({"min.compaction.lag.ms": "5000"}, {"max.compaction.lag.ms": "1000"}, (5_000, 2**63 - 1)),
        ({"max.compaction.lag.ms": "9000"}, {"min.compaction.lag.ms": "5000"}, (5_000, 9_000)),
    ],
)
def test_of_a_brokers_defaults_only_those_that_contradict_a_topic_are_left_out(
    of_topic: dict[str, str], of_broker: dict[str, str], lags: tuple[int, int]
) -> None:
    topic = TopicImage("a", TopicId(bytes(16)), of_topic, ())
    config = effective(topic, {**KEPT, **of_broker})
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == lags
    assert (config.retention_ms, config.flush, config.min_insync_replicas) == (-1, "group", 2)


@pytest.mark.parametrize("setting", [("of.a.newer.release", "1"), ("segment.bytes", "big")])
def test_a_setting_of_a_topic_that_this_release_does_not_know_is_left_out_alone(
    setting: tuple[str, str],
) -> None:
    topic = TopicImage("a", TopicId(bytes(16)), {"retention.ms": "5", **dict([setting])}, ())
    config = effective(topic, KEPT)
    assert (config.retention_ms, config.flush, config.segment_bytes) == (5, "group", 1 << 30)
