"""Topic configuration: Kafka's names, defaults and validation, and Tidemark's own ``flush``."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tidemark.model.config_values import (
    LONG_MAX,
    LONG_MIN,
    ConfigKind,
    InvalidConfigError,
    boolean,
    double,
    integer,
    list_of,
    long,
    one_of,
    replicas,
)


class TopicConfigKey(NamedTuple):
    """One key. ``broker_name`` is the broker-wide key that overrides the default; '' if none."""

    name: str
    kind: ConfigKind
    default: str
    broker_name: str
    doc: str


_WEEK_MS: Final = 7 * 24 * 3600 * 1000
_KEYS: Final = (
    TopicConfigKey(
        "cleanup.policy",
        list_of("compact", "delete"),
        "delete",
        "log.cleanup.policy",
        "delete: by time and size; compact: keep the last record of each key; or both",
    ),
    TopicConfigKey(
        "compression.type",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "producer",
        "compression.type",
        "codec in which batches are stored; producer: as they arrive",
    ),
    TopicConfigKey(
        "compression.gzip.level",
        integer(1, 9, or_else=-1),
        "-1",
        "compression.gzip.level",
        "level for compression.type=gzip",
    ),
    TopicConfigKey(
        "compression.lz4.level",
        integer(1, 17),
        "9",
        "compression.lz4.level",
        "level for compression.type=lz4",
    ),
    TopicConfigKey(
        "compression.zstd.level",
        integer(-131072, 22),
        "3",
        "compression.zstd.level",
        "level for compression.type=zstd",
    ),
    TopicConfigKey(
        "delete.retention.ms",
        long(0),
        "86400000",
        "log.cleaner.delete.retention.ms",
        "time for which a tombstone is kept after its segment was compacted",
    ),
    TopicConfigKey(
        "errors.deadletterqueue.group.enable",
        boolean(),
        "false",
        "",
        "whether groups may name the topic as their dead-letter queue",
    ),
    TopicConfigKey(
        "file.delete.delay.ms",
        long(0),
        "60000",
        "log.segment.delete.delay.ms",
        "time for which a removed segment stays on disk",
    ),
    TopicConfigKey(
        "flush.messages",
        long(1),
        str(LONG_MAX),
        "log.flush.interval.messages",
        "fsync after this many records",
    ),
    TopicConfigKey(
        "flush.ms", long(0), str(LONG_MAX), "log.flush.interval.ms", "fsync after this time"
    ),
    TopicConfigKey(
        "follower.replication.throttled.replicas",
        replicas(),
        "",
        "",
        "replicas throttled as followers",
    ),
    TopicConfigKey(
        "index.interval.bytes",
        integer(0),
        "4096",
        "log.index.interval.bytes",
        "bytes of log between two entries of the offset index",
    ),
    TopicConfigKey(
        "leader.replication.throttled.replicas", replicas(), "", "", "replicas throttled as leaders"
    ),
    TopicConfigKey(
        "max.compaction.lag.ms",
        long(1),
        str(LONG_MAX),
        "log.cleaner.max.compaction.lag.ms",
        "time after which a record can be compacted at the latest",
    ),
    TopicConfigKey(
        "max.message.bytes",
        integer(0),
        "1048588",
        "message.max.bytes",
        "maximum size of a batch, after compression",
    ),
    TopicConfigKey(
        "message.timestamp.after.max.ms",
        long(0),
        "3600000",
        "log.message.timestamp.after.max.ms",
        "maximum by which a record's timestamp may be ahead of the broker's clock",
    ),
    TopicConfigKey(
        "message.timestamp.before.max.ms",
        long(0),
        str(LONG_MAX),
        "log.message.timestamp.before.max.ms",
        "maximum by which a record's timestamp may be behind the broker's clock",
    ),
    TopicConfigKey(
        "message.timestamp.type",
        one_of("CreateTime", "LogAppendTime"),
        "CreateTime",
        "log.message.timestamp.type",
        "CreateTime: records have the producer's timestamps; LogAppendTime: the broker's",
    ),
    TopicConfigKey(
        "min.cleanable.dirty.ratio",
        double(0, 1),
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "part of the log that is not compacted yet, at which compaction begins",
    ),
    TopicConfigKey(
        "min.compaction.lag.ms",
        long(0),
        "0",
        "log.cleaner.min.compaction.lag.ms",
        "time for which a record is not compacted",
    ),
    TopicConfigKey(
        "min.insync.replicas",
        integer(1),
        "1",
        "min.insync.replicas",
        "number of in-sync replicas that acks=all requires",
    ),
    TopicConfigKey(
        "preallocate",
        boolean(),
        "false",
        "log.preallocate",
        "reserve the space of a segment when it is created",
    ),
    TopicConfigKey(
        "retention.bytes",
        long(LONG_MIN),
        "-1",
        "log.retention.bytes",
        "maximum size of a partition with cleanup.policy=delete; -1: no bound",
    ),
    TopicConfigKey(
        "retention.ms",
        long(-1),
        str(_WEEK_MS),
        "log.retention.ms",
        "time for which records are kept; -1: forever",
    ),
    TopicConfigKey(
        "segment.bytes",
        integer(1024 * 1024),
        "1073741824",
        "log.segment.bytes",
        "maximum size of a segment file",
    ),
    TopicConfigKey(
        "segment.index.bytes",
        integer(4),
        "10485760",
        "log.index.size.max.bytes",
        "maximum size of an index file of a segment",
    ),
    TopicConfigKey(
        "segment.jitter.ms",
        long(0),
        "0",
        "log.roll.jitter.ms",
        "maximum of a random time that is subtracted from segment.ms",
    ),
    TopicConfigKey(
        "segment.ms",
        long(1),
        str(_WEEK_MS),
        "log.roll.ms",
        "time after which a segment is closed and a new one begins",
    ),
    TopicConfigKey(
        "unclean.leader.election.enable",
        boolean(),
        "false",
        "unclean.leader.election.enable",
        "allow a replica that is not in sync to lead when no other can, which may lose records",
    ),
    TopicConfigKey(
        "flush",
        one_of("os", "group"),
        "os",
        "log.flush.policy",
        "os: records are acknowledged in the memory of the in-sync replicas; group: after an fsync",
    ),
)
TOPIC_CONFIG_KEYS: Final[Mapping[str, TopicConfigKey]] = {key.name: key for key in _KEYS}
MAY_CONTRADICT: Final = frozenset({"max.compaction.lag.ms", "min.compaction.lag.ms"})
"""Keys whose values, each of them valid, may contradict one another."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Effective configuration of a topic. Attributes are the keys of TOPIC_CONFIG_KEYS, with _ for
    dots.
    """

    cleanup_policy: tuple[str, ...]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    flush: str

    @property
    def is_compacted(self) -> bool:
        """True if cleanup.policy contains compact."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_by_retention(self) -> bool:
        """True if cleanup.policy contains delete."""
        return "delete" in self.cleanup_policy


def unknown_key_problem(name: str) -> str | None:
    """Return a message with the most similar name for an unknown key; None for a known key."""
    if name in TOPIC_CONFIG_KEYS:
        return None
    near = difflib.get_close_matches(name, TOPIC_CONFIG_KEYS, n=1)
    return f"Unknown topic config name: {name}" + (f"; did you mean {near[0]}?" if near else "")


def parse_value(name: str, text: str) -> Any:
    """Parse one value. Raises InvalidConfigError with Kafka's messages."""
    problem = unknown_key_problem(name)
    if problem is not None:
        raise InvalidConfigError(problem)
    try:
        return TOPIC_CONFIG_KEYS[name].kind.parse(text)
    except InvalidConfigError as reason:
        raise InvalidConfigError(
            f"Invalid value {text} for configuration {name}: {reason}"
        ) from None


def unknown_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the problem of each setting that this release does not know, or that has a value which
    it does not take: a newer release set it.
    """
    problems = {}
    for name, text in overrides.items():
        try:
            parse_value(name, text)
        except InvalidConfigError as reason:
            problems[name] = str(reason)
    return problems


def topic_config(
    overrides: Mapping[str, str], broker_defaults: Mapping[str, str] | None = None
) -> TopicConfig:
    """Return the configuration of a topic: ``overrides``, else ``broker_defaults`` (by topic key),
    else Kafka's defaults.

    Raises InvalidConfigError for an unknown key, an invalid value or contradictory keys.
    """
    return _parsed(tuple(sorted(overrides.items())), tuple(sorted((broker_defaults or {}).items())))


@lru_cache(maxsize=4_096)
def _parsed(
    overrides: tuple[tuple[str, str], ...], broker_defaults: tuple[tuple[str, str], ...]
) -> TopicConfig:
    """Parse a configuration. Cached, because most topics have the same settings."""
    texts = {key.name: key.default for key in _KEYS} | dict(broker_defaults) | dict(overrides)
    config = TopicConfig(
        **{name.replace(".", "_"): parse_value(name, text) for name, text in texts.items()}
    )
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfigError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) must not exceed"
            f" max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    return config
