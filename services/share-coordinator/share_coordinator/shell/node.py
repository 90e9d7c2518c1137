"""One share-coordinator replica: a member of the cluster that serves the shards assigned to it."""

import random
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tidemark.model.backoff import Dice
from tidemark.model.metadata import SHARE
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.model.topics import SHARE_GROUP_STATE
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.coordinator.metrics import RequestStats
from tidemark.runtime.coordinator.node import CoordinatorNode
from tidemark.runtime.coordinator.shard_life import ShardWorld
from tidemark.runtime.log_ends import LogEnds
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.topics_view import TopicsView

from share_coordinator.config import SERVICE, ShareCoordinatorConfig
from share_coordinator.core.assignors import BY_LOAD
from share_coordinator.core.requests import TopicsDeleted
from share_coordinator.core.shard import ShareShard
from share_coordinator.shell.broker_calls import BrokerCalls
from share_coordinator.shell.lag_meter import LagMeter
from share_coordinator.shell.metrics import PREFIX, measure
from share_coordinator.shell.shard_life import ShardLife

TOPICS: Final = "topics"
_NOTHING_SET: Final[Mapping[str, str]] = MappingProxyType({})


class ShareCoordinatorNode(CoordinatorNode[ShardLife]):
    """Object graph of one replica, between its server and its membership."""

    config: ShareCoordinatorConfig

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        clock: Clock,
        metrics: Metrics,
        *,
        channels: ChannelPool | None = None,
        dice: Dice = random.random,
    ) -> None:
        """The node closes ``channels``, which go to brokers. ``dice`` spreads retries."""
        super().__init__(
            SHARE,
            SHARE_GROUP_STATE,
            config,
            clock,
            RequestStats(metrics, PREFIX),
            channels=channels,
            dice=dice,
            subscribers=(TOPICS,),
        )
        self.metadata.subscribe(TOPICS, Kind.TOPICS_DELETED, self._topics_deleted)
        self.metrics = metrics
        self.settings = config.settings()
        self.calls = BrokerCalls(self.metadata, self.channels, dice)
        self._lags = LagMeter(
            self.shards,
            self.metadata,
            LogEnds(self.metadata, self.channels),
            lambda group_id: self.settings.options.of_group(self._configs_of(group_id)),
            interval_ms=config.group_share_lag_interval_ms,
        )
        self._topics = TopicsView(self.metadata)
        self._world = ShardWorld(
            self.metadata,
            self.channels,
            clock,
            dice,
            client_id=f"{SERVICE}-{config.coordinator_id}",
            append_timeout_ms=config.share_coordinator_write_timeout_ms,
            requests_waiting_max=config.shard_requests_waiting_max,
            linger_ms=config.share_coordinator_append_linger_ms,
            observe_load_s=self.stats.load_seconds.observe,
        )
        measure(self.shards, metrics)

    def open_life(self, shard: int, owner_epoch: int) -> ShardLife:
        """See CoordinatorNode."""
        return ShardLife(
            shard, owner_epoch, self._world, make_shard=self._make_shard, calls=self.calls
        )

    def duties(self) -> Sequence[tuple[str, Coroutine[Any, Any, None]]]:
        """See CoordinatorNode."""
        calls = ("broker-calls", self.calls.run())
        if self.settings.assignor_name != BY_LOAD:
            return (calls,)
        return calls, ("lags", self._lags.run())

    def _make_shard(self) -> ShareShard:
        return ShareShard(self.settings, lambda: self._topics, self._configs_of)

    def _configs_of(self, group_id: str) -> Mapping[str, str]:
        return self.metadata.image.group_configs.get(group_id, _NOTHING_SET)

    def _topics_deleted(self, change: MetadataChange) -> None:
        gone = TopicsDeleted(frozenset(topic.topic_id for topic in change.topics_deleted))
        for life in self.shards.serving().values():
            life.submit(gone)
