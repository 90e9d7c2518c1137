"""Creation of internal topics. The first broker that is asked for a coordinator creates
them, with the configured number of replicas or not yet (KIP-115).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import (
    AUDIT_LOG,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig
from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.counters import BrokerCounters
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import NewTopic, TopicRef, write_create_topics

log = logging.getLogger(__name__)

CREATE_TIMEOUT_MS: Final = 10_000
STATE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest batch: a large group, a transaction of many partitions, or states of many
share-partitions.
"""
_MINIMUM: Final = "min.insync.replicas"


class Wanted(NamedTuple):
    """Configuration of an internal topic. ``factor_key`` names the option of its replication
    factor.
    """

    partition_count: int
    replication_factor: int
    factor_key: str
    configs: Mapping[str, str]

    @property
    def min_insync_replicas(self) -> int:
        """Minimum of the topic; 0: it has the default of all topics."""
        return int(self.configs.get(_MINIMUM, "0"))


def wanted_topics(config: BrokerConfig) -> dict[str, Wanted]:
    """Return the internal topics by name, as this broker is configured."""
    common = {"cleanup.policy": "compact", "max.message.bytes": str(STATE_BYTES_MAX)}
    offsets_bytes = max(config.offsets_topic_segment_bytes, STATE_BYTES_MAX)
    state_bytes = max(config.transaction_state_log_segment_bytes, STATE_BYTES_MAX)
    share_bytes = max(config.share_coordinator_state_topic_segment_bytes, STATE_BYTES_MAX)
    return {
        CONSUMER_OFFSETS: Wanted(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            "offsets.topic.replication.factor",
            {**common, "segment.bytes": str(offsets_bytes)},
        ),
        TRANSACTION_STATE: Wanted(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            "transaction.state.log.replication.factor",
            {
                **common,
                "segment.bytes": str(state_bytes),
                _MINIMUM: str(config.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
            },
        ),
        AUDIT_LOG: Wanted(
            config.audit_topic_num_partitions,
            config.audit_topic_replication_factor,
            "audit.topic.replication.factor",
            {"cleanup.policy": "delete", "retention.ms": str(config.audit_topic_retention_ms)},
        ),
        SHARE_GROUP_STATE: Wanted(
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            "share.coordinator.state.topic.replication.factor",
            {
                # Compaction would keep the last of many updates. The coordinator deletes what is
                # older than the snapshots.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "max.message.bytes": str(STATE_BYTES_MAX),
                "segment.bytes": str(share_bytes),
                _MINIMUM: str(config.share_coordinator_state_topic_min_isr),
                "unclean.leader.election.enable": "false",
            },
        ),
    }


class InternalTopics:
    """Creates the coordinators' topics on behalf of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        relay: ControllerRelay,
        *,
        metadata: MetadataCache,
        live: LiveBrokers,
        counters: BrokerCounters,
    ) -> None:
        self._wanted = wanted_topics(config)
        self._relay = relay
        self._metadata = metadata
        self._live = live
        self._counters = counters
        for name in self._wanted:
            # From 0 on: Prometheus sees no increase in a series whose first value is 1.
            counters.refusals_of(name)

    async def ensure(self, context: RequestContext, name: str) -> TidemarkError | None:
        """Return None once the topic is in this broker's metadata, and otherwise a retriable
        error.
        """
        if name in self._metadata.image.topics:
            return None
        words = f"{name} is being created; ask again"
        if not self._live.epochs:
            return TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, words)
        wanted = self._wanted[name]
        new = NewTopic(name, wanted.partition_count, wanted.replication_factor, (), wanted.configs)
        message = write_create_topics(
            caller_of(context), [new], validate_only=False, timeout_ms=CREATE_TIMEOUT_MS
        )
        (result,) = await self._relay.topics(
            "CreateTopics", message, named=[TopicRef(name)], timeout_ms=CREATE_TIMEOUT_MS
        )
        if name in self._metadata.image.topics or result.error_code is ErrorCode.NONE:
            return None
        if result.error_code is ErrorCode.INVALID_REPLICATION_FACTOR:
            words = self._too_few_brokers(name, wanted)
        return TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, words)

    def _too_few_brokers(self, name: str, wanted: Wanted) -> str:
        """Return the message; it is logged once for each number of brokers, however often clients
        ask.
        """
        live, factor = len(self._live.epochs), wanted.replication_factor
        words = (
            f"{name} is not created yet: it needs {factor} replicas, each on a machine of its"
            f" own, and {live} brokers are alive. Start more brokers, or lower {wanted.factor_key}."
        )
        refusals = self._counters.refusals_of(name)
        refusals.count += 1
        if refusals.logged != words:
            refusals.logged = words
            said = fields(topic=name, wanted=factor, live=live, option=wanted.factor_key)
            log.warning("internal topic not created: too few brokers", extra=said)
        return words
