import re

import pytest
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS, TopicConfig, topic_config


def test_defaults_are_kafkas() -> None:
    config = topic_config({})
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.segment_bytes == 1 << 30
    assert config.max_message_bytes == 1_048_588
    assert config.cleanup_policy == ("delete",)
    assert config.flush == "os"


def test_every_key_has_its_attribute_and_a_valid_default() -> None:
    attributes = {name.replace(".", "_") for name in TOPIC_CONFIG_KEYS}
    assert attributes == set(TopicConfig.__slots__)


def test_a_topics_value_wins_over_the_brokers() -> None:
    config = topic_config({"retention.ms": "5"}, {"retention.ms": "7", "segment.ms": "9"})
    assert (config.retention_ms, config.segment_ms) == (5, 9)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("retention.ms", "soon", "not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "1024", "at least 1048576"),
        ("cleanup.policy", "shred", "compact, delete"),
        ("compression.type", "rar", "producer, uncompressed"),
        ("compression.gzip.level", "0", "at least 1 and at most 9, or -1"),
        ("compression.gzip.level", "-2", "at least 1 and at most 9, or -1"),
        ("compression.gzip.level", "10", "at least 1 and at most 9, or -1"),
        ("compression.lz4.level", "0", "at least 1 and at most 17"),
        ("compression.lz4.level", "18", "at least 1 and at most 17"),
        ("compression.zstd.level", "23", "at least -131072 and at most 22"),
        ("preallocate", "maybe", "either true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("retenton.ms", "5", "did you mean retention.ms?"),
        ("leader.replication.throttled.replicas", "orders", "must be the literal '*' or a list of"),
        ("follower.replication.throttled.replicas", "0:1,*", "[partitionId]:[brokerId]"),
        ("follower.replication.throttled.replicas", "0:-1", "[partitionId]:[brokerId]"),
    ],
)
def test_a_bad_value_is_refused_with_what_may_stand_there(key: str, value: str, words: str) -> None:
    with pytest.raises(InvalidConfigError, match="(?s).*" + re.escape(words)):
        topic_config({key: value})


def test_keys_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"must not exceed max\.compaction\.lag\.ms"):
        topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("codec", "levels"),
    [("gzip", (-1, 1, 9)), ("lz4", (1, 17)), ("zstd", (-131072, 0, 22))],
)
def test_the_levels_of_codecs_are_kafkas(codec: str, levels: tuple[int, ...]) -> None:
    for level in levels:
        config = topic_config({f"compression.{codec}.level": str(level)})
        assert getattr(config, f"compression_{codec}_level") == level


def test_cleanup_policy_may_name_both() -> None:
    config = topic_config({"cleanup.policy": "compact, delete"})
    assert config.is_compacted
    assert config.deletes_by_retention


@pytest.mark.parametrize(
    ("text", "replicas"),
    [("", ()), ("*", ("*",)), (" 0:1 , 10:2,", ("0:1", "10:2")), ("*,", ("*",))],
)
def test_throttled_replicas_are_all_or_named(text: str, replicas: tuple[str, ...]) -> None:
    config = topic_config({"leader.replication.throttled.replicas": text})
    assert config.leader_replication_throttled_replicas == replicas
