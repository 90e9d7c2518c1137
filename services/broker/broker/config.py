"""Options of a broker, with Kafka's names, and with unit, bounds, default and reason of each."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, model_validator
from tidemark.model.broker_configs import contradiction
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS, topic_config
from tidemark.runtime.cluster_config import ClusterConfig
from tidemark.runtime.service_config import Address, CommaList

from broker.audit_config import BrokerAuditConfig
from broker.coarse_times import CoarseTimesConfig
from broker.coordination_config import CoordinationConfig
from broker.core.batch_rules import BATCH_RECORDS_MAX
from broker.dynamic_config import DynamicConfig
from broker.listeners_config import ListenersConfig
from broker.metrics_config import MetricsConfig
from broker.read_replica_config import ReadReplicaConfig
from broker.share_config import ShareConfig

_MIB: Final = 1024 * 1024

Text = str | None


def _for_topics(topic_key: str) -> Any:
    """Return the field of a broker-wide key that is the default of a topic's."""
    key = TOPIC_CONFIG_KEYS[topic_key]
    return Field(
        None, description=f"{key.name} of topics that do not set it (else {key.default}): {key.doc}"
    )


class BrokerConfig(
    CoordinationConfig,
    ShareConfig,
    MetricsConfig,
    CoarseTimesConfig,
    DynamicConfig,
    ListenersConfig,
    ReadReplicaConfig,
    BrokerAuditConfig,
    ClusterConfig,
):
    """A broker's configuration."""

    broker_id: int = Field(
        ge=0,
        description="number of this broker, unique in the cluster; it stays the same as long as"
        " its disks",
    )
    log_dirs: CommaList = Field(
        ("data",), min_length=1, description="directories for partitions, best one on each device"
    )
    runtime_dir: str = Field(
        "/dev/shm",
        description="directory in memory (tmpfs) that outlives the process: a failed disk is"
        " recorded there too, since it may not take a note of its own failure; brokers of one"
        " machine may share it",
    )
    grpc_listen: Address = Field("127.0.0.1:9292", description="address of the gRPC server")
    grpc_advertised: str = Field(
        "", description="host:port that other processes use for gRPC; default: grpc.listen"
    )
    rack: str = Field(
        "", description="failure domain; replicas of a partition are spread over racks"
    )
    node: str = Field(
        "",
        description="machine; two replicas of a partition are never on the same one; default:"
        " host name",
    )

    auto_create_topics_enable: bool = Field(
        default=True, description="create an unknown topic when a client requests its metadata"
    )
    num_partitions: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="partitions of a topic that is created automatically; default: the"
        " controller's num.partitions",
    )
    default_replication_factor: int | None = Field(
        None,
        ge=1,
        le=32_767,
        description="replicas of a topic that is created automatically; default: the"
        " controller's default.replication.factor",
    )

    max_connections: int = Field(
        10_000,
        ge=1,
        description="maximum number of open connections, all listeners together; INTERNAL takes 64"
        " more, for followers; may be changed at run time, within the limit of open files",
    )
    max_connections_per_ip: int = Field(
        10_000,
        ge=0,
        description="maximum number of open connections from one address; 0 with overrides only;"
        " may be changed at run time",
    )
    connections_max_idle_ms: int = Field(
        600_000, ge=1_000, description="a connection without traffic for this long is closed"
    )
    socket_request_max_bytes: int = Field(
        100 * _MIB,
        ge=1_024,
        le=2**31 - 1,
        description="maximum size of a request frame; a larger one closes its connection",
    )
    frame_deadline_ms: int = Field(
        30_000,
        ge=100,
        description="time that a frame may take from its first byte to its last, in addition to"
        " what frame.min.bytes.per.s allows; after that its connection is closed, so that its"
        " buffer is freed",
    )
    frame_min_bytes_per_s: int = Field(
        256 * 1024,
        ge=1,
        description="minimum rate at which a frame must arrive after frame.deadline.ms: at 256"
        " KB/s a frame of 100 MB may take seven minutes; lower it for clients with slow links"
        " and large requests",
    )
    requests_in_flight_max: int = Field(
        64,
        ge=1,
        description="maximum number of unanswered requests of a connection; beyond it, nothing"
        " is read from the connection",
    )
    connection_queued_max_bytes: int = Field(
        4 * _MIB,
        ge=65_536,
        description="maximum size of unsent answers of a connection; beyond it, nothing is read"
        " from the connection",
    )
    buffers_max_bytes: int = Field(
        512 * _MIB,
        ge=_MIB,
        description="maximum size of the receive buffers of all connections; beyond it, large"
        " frames wait. Connections of the listener INTERNAL have an eighth of it besides",
    )
    grpc_bulk_bytes_in_flight_max: int = Field(
        64 * _MIB,
        ge=_MIB,
        description="maximum size of the batches in memory of all gRPC streams together",
    )
    batch_records_max: int = Field(
        BATCH_RECORDS_MAX,
        ge=1,
        le=2**31 - 1,
        description="maximum number of records in a batch; a larger batch is refused with"
        " MESSAGE_TOO_LARGE, and clients that can split it do so",
    )
    batch_inspection_deadline_ms: int = Field(
        30_000,
        ge=100,
        description="time that a worker may take for the records of one batch, on a compacted"
        " topic, to recompress, or to look up a time; after that the worker is killed and the"
        " request refused",
    )
    parked_requests_max: int = Field(
        16_384,
        ge=1,
        description="maximum number of waiting long polls of clients; another one is answered"
        " at once",
    )
    parked_writes_max: int = Field(
        16_384,
        ge=1,
        description="maximum number of produce requests that wait for replicas; another one is"
        " not read from its connection",
    )
    parked_followers_max: int = Field(
        1_024,
        ge=1,
        description="maximum number of waiting long polls of followers, a few for each broker"
        " of the cluster; another one is answered at once",
    )

    fetch_max_bytes: int = Field(
        55 * _MIB,
        ge=1_024,
        description="maximum size of a fetch response, whatever the client requests",
    )
    max_incremental_fetch_session_cache_slots: int = Field(
        1_000, ge=0, description="maximum number of fetch sessions"
    )

    replica_lag_time_max_ms: int = Field(
        10_000,
        ge=100,
        description="a follower that has not been caught up for this long leaves the ISR",
    )
    replica_fetch_wait_max_ms: int = Field(
        500, ge=1, description="time that a follower's fetch waits at the leader for records"
    )
    replica_fetch_max_bytes: int = Field(
        _MIB, ge=1_024, description="maximum size of one partition in a follower's fetch"
    )
    replica_fetch_response_max_bytes: int = Field(
        10 * _MIB,
        ge=1_024,
        description="maximum size of a follower's fetch, all partitions together",
    )
    replica_fetch_backoff_ms: int = Field(
        1_000,
        ge=1,
        description="longest pause of a follower after a failed fetch, before 20 % of jitter",
    )
    replica_socket_timeout_ms: int = Field(
        30_000,
        ge=100,
        description="a follower reconnects to a leader that has not answered for this long",
    )
    leader_replication_throttled_rate: int = Field(
        2**63 - 1,
        ge=1,
        description="bytes/s sent to throttled followers while replicas move; may be changed at"
        " run time",
    )
    follower_replication_throttled_rate: int = Field(
        2**63 - 1,
        ge=1,
        description="bytes/s fetched for throttled replicas while they move; may be changed at"
        " run time",
    )
    num_replica_alter_log_dirs_threads: int | None = Field(
        None,
        ge=1,
        description="replicas that are copied to other log directories at the same time; default:"
        " the number of log directories",
    )
    lease_ms: int = Field(
        3_000,
        ge=300,
        description="time that a controller waits before it replaces a leader that cannot be"
        " reached; the same on all brokers and controllers",
    )
    controlled_shutdown_enable: bool = Field(
        default=True, description="hand over leadership of all partitions before stopping"
    )
    controlled_shutdown_deadline_ms: int = Field(
        15_000,
        ge=0,
        description="time that handing over may take, at most 0.4 of shutdown.deadline.ms",
    )

    log_flush_interval_ms: int = Field(
        10_000, ge=100, description="interval at which logs are synced in the background (flush=os)"
    )
    log_flush_group_interval_ms: int = Field(
        2,
        ge=0,
        le=1_000,
        description="time for which a group commit gathers writes before it syncs them"
        " (flush=group)",
    )
    log_flush_offset_checkpoint_interval_ms: int = Field(
        10_000,
        ge=100,
        description="interval at which recovery points, high watermarks and log starts are written",
    )
    log_retention_check_interval_ms: int = Field(
        60_000,
        ge=100,
        description="interval of the checks for retention, rolls by time and files to remove",
    )
    log_cleaner_enable: bool = Field(default=True, description="run compaction")
    log_scrub_bytes_per_s: int = Field(
        8 * _MIB, ge=0, description="rate at which closed segments are read and checked; 0: never"
    )
    log_cleanup_policy: Text = _for_topics("cleanup.policy")
    compression_type: Text = _for_topics("compression.type")
    compression_gzip_level: Text = _for_topics("compression.gzip.level")
    compression_lz4_level: Text = _for_topics("compression.lz4.level")
    compression_zstd_level: Text = _for_topics("compression.zstd.level")
    log_cleaner_delete_retention_ms: Text = _for_topics("delete.retention.ms")
    log_segment_delete_delay_ms: Text = _for_topics("file.delete.delay.ms")
    log_flush_interval_messages: Text = _for_topics("flush.messages")
    log_index_interval_bytes: Text = _for_topics("index.interval.bytes")
    log_cleaner_max_compaction_lag_ms: Text = _for_topics("max.compaction.lag.ms")
    message_max_bytes: Text = _for_topics("max.message.bytes")
    log_message_timestamp_after_max_ms: Text = _for_topics("message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: Text = _for_topics("message.timestamp.before.max.ms")
    log_message_timestamp_type: Text = _for_topics("message.timestamp.type")
    log_cleaner_min_cleanable_ratio: Text = _for_topics("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: Text = _for_topics("min.compaction.lag.ms")
    min_insync_replicas: Text = _for_topics("min.insync.replicas")
    log_preallocate: Text = _for_topics("preallocate")
    log_retention_bytes: Text = _for_topics("retention.bytes")
    log_retention_ms: Text = _for_topics("retention.ms")
    log_segment_bytes: Text = _for_topics("segment.bytes")
    log_index_size_max_bytes: Text = _for_topics("segment.index.bytes")
    log_roll_jitter_ms: Text = _for_topics("segment.jitter.ms")
    log_roll_ms: Text = _for_topics("segment.ms")
    unclean_leader_election_enable: Text = _for_topics("unclean.leader.election.enable")
    log_flush_policy: Text = _for_topics("flush")

    @model_validator(mode="before")
    @classmethod
    def _numbers_as_text(cls, values: object) -> object:
        """Convert topic defaults given as a number or boolean to text, to be parsed as Kafka's."""
        if not isinstance(values, dict):
            return values
        return {
            name: _as_text(value) if name in _TOPIC_DEFAULT_FIELDS else value
            for name, value in values.items()
        }

    @model_validator(mode="after")
    def _consistent(self) -> "BrokerConfig":
        problem = contradiction(
            {
                "max.connections.per.ip": str(self.max_connections_per_ip),
                "max.connections.per.ip.overrides": self.max_connections_per_ip_overrides,
            }
        )
        if problem is not None:
            raise ValueError(problem)
        try:
            topic_config({}, self.topic_defaults())
        except InvalidConfigError as reason:
            raise ValueError(str(reason)) from None
        return self

    def topic_defaults(self) -> dict[str, str]:
        """Return this broker's start-up defaults for topics that do not set them, by topic key."""
        set_here = {}
        for field_name, topic_key in _TOPIC_DEFAULT_FIELDS.items():
            value = getattr(self, field_name)
            coarse = self.coarse_setting(TOPIC_CONFIG_KEYS[topic_key].broker_name)
            if value is not None:
                set_here[topic_key] = value
            elif coarse is not None:
                set_here[topic_key] = coarse[0].in_ms(coarse[1])
        return set_here


def _as_text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


# Kafka's broker-wide name for flush.ms is log.flush.interval.ms, which here is the interval of the
# background round.
_TOPIC_DEFAULT_FIELDS: Final[Mapping[str, str]] = {
    key.broker_name.replace(".", "_"): key.name
    for key in TOPIC_CONFIG_KEYS.values()
    if key.broker_name and key.name != "flush.ms"
}
