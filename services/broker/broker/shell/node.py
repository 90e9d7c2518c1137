"""BrokerNode: the parts of one broker process. Everything here runs on the event loop."""

import random
from collections.abc import Callable, Sequence

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.backoff import Dice
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.producer_ids import ProducerIds
from tidemark.runtime.worker_pool import WorkerPool

from broker.config import BrokerConfig
from broker.core.authorizer import Authorizer
from broker.core.fetch_sessions import FetchSessions
from broker.core.quotas import Quotas
from broker.shell.cluster.auto_creation import AutoCreation
from broker.shell.cluster.controller_relay import ControllerRelay
from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.cluster.registration import Registration
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.groups.coordinator import Groups
from broker.shell.groups.group_log import GroupLog
from broker.shell.limits import connection_limits
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.partitions.parking_lot import ParkingLot, parked_limits
from broker.shell.partitions.reader import PartitionReader
from broker.shell.partitions.suspects import Suspects
from broker.shell.partitions.table import PartitionTable
from broker.shell.replication.fetcher import FetcherParts
from broker.shell.replication.follower_throttle import FollowerThrottle
from broker.shell.replication.isr_sender import IsrSender
from broker.shell.replication.leader_throttle import LeaderThrottle
from broker.shell.replication.replica_reader import ReplicaReader
from broker.shell.subscribers import ACT_FIRST, ACT_THEN, GROUPS, THROTTLES
from broker.shell.transactions.txn_relay import TxnRelay
from broker.shell.transactions.txn_verifier import TxnVerifier
from broker.storage.log_manager import LogManager


def no_lease_needed() -> bool:
    """For a broker without a controller: no other broker could lead."""
    return True


def no_verification(_: TxnRelay) -> None:
    """For transaction.partition.verification.enable=false."""


class BrokerNode:
    """One broker: its partitions, the current image, and the services that handlers use."""

    def __init__(
        self,
        config: BrokerConfig,
        log_managers: Sequence[LogManager],
        *,
        clock: Clock,
        controller: ControllerClient,
        producer_ids: ProducerIds,
        workers: WorkerPool,
        lookups: WorkerPool | None = None,
        draw_session_id: Callable[[], int],
        channels: ChannelPool | None = None,
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
        failed_directories: Sequence[str] = (),
        dice: Dice = random.random,
        has_lease: Callable[[], bool] = no_lease_needed,
        make_verifier: Callable[[TxnRelay], TxnVerifier | None] = no_verification,
    ) -> None:
        """``failed_directories``: those of log.dirs that did not open. ``dice`` spreads retries.
        ``has_lease``: whether no other broker can lead what this one leads.
        """
        self.config = config
        self.broker_id = BrokerId(config.broker_id)
        self.facts = BrokerFacts(self.broker_id, config, clock, dice)
        self.registration = Registration(self.broker_id)
        self.metadata = MetadataCache(first=ACT_FIRST, then=ACT_THEN)
        self.table = PartitionTable(self.broker_id, self.metadata)
        self.clock = clock
        self.dice = dice
        self.controller = controller
        self.producer_ids = producer_ids
        self.workers = workers
        """Look at the records of batches before they are appended."""
        self.lookups = lookups or workers
        """Look for the record of a point in time."""
        self.authorizer = authorizer or Authorizer()
        self.quotas = quotas or Quotas()
        self.leader_throttle = LeaderThrottle(config)
        self.follower_throttle = FollowerThrottle(config)
        self.counters = BrokerCounters()
        self.limits = connection_limits(config)
        self.fetch_sessions: FetchSessions[FetchPartition] = FetchSessions(
            draw_session_id, sessions_max=config.max_incremental_fetch_session_cache_slots
        )
        self.parked = ParkingLot(parked_limits(config), clock, self.fetch_sessions)
        self.disks = self._make_disks(log_managers, failed_directories)
        self.reader = PartitionReader(self.disks)
        self.group_commits = GroupCommits(self.disks.log_managers)
        self.has_lease = has_lease
        self.appender = self._make_appender()
        self.log_moves = LogMoves(self.parked)
        self.suspects = Suspects()
        self.live = LiveBrokers(self.metadata)
        self.isr_sender = self._make_isr_sender()
        self.replica_reader = self._make_replica_reader()
        self.txn = TxnRelay(self.metadata, ChannelPool() if channels is None else channels, dice)
        self.txn_verifier = make_verifier(self.txn)
        """Asked about transactional batches; None: transaction.partition.verification.enable is
        off.
        """
        self.groups = self._make_groups()
        self.relay = ControllerRelay(controller, self.metadata, clock)
        self.internal_topics = self._make_internal_topics()
        self.auto_creation = AutoCreation(
            config, self.relay, metadata=self.metadata, authorizer=self.authorizer
        )
        self.metadata.subscribe(GROUPS, Kind.POSITION | Kind.TOPICS_DELETED, self.groups.follow)
        self.metadata.subscribe(THROTTLES, Kind.BROKER_CONFIGS, self._set_throttles)

    @property
    def image(self) -> ClusterImage:
        """All metadata as last shown."""
        return self.metadata.image

    def _make_disks(
        self, log_managers: Sequence[LogManager], failed_directories: Sequence[str]
    ) -> DiskHealth:
        return DiskHealth(
            log_managers,
            failed_directories,
            hosted=self.table.by_name,
            parked=self.parked,
            counters=self.counters,
        )

    def _make_appender(self) -> PartitionAppender:
        return PartitionAppender(
            clock=self.clock,
            disks=self.disks,
            parked=self.parked,
            fetch_sessions=self.fetch_sessions,
            group_commits=self.group_commits,
            counters=self.counters,
            has_lease=self.has_lease,
        )

    def _make_internal_topics(self) -> InternalTopics:
        return InternalTopics(
            self.config,
            self.relay,
            metadata=self.metadata,
            live=self.live,
            counters=self.counters,
        )

    def _make_groups(self) -> Groups:
        return Groups(
            self.config.group_settings(),
            metadata=self.metadata,
            hosted=self.table.by_name,
            make_log=self._make_group_log,
            verifier=self.txn_verifier,
            clock=self.clock,
        )

    def _make_group_log(self, hosted: HostedPartition) -> GroupLog:
        return GroupLog(
            hosted,
            appender=self.appender,
            parked=self.parked,
            disks=self.disks,
            timeout_ms=self.config.offsets_commit_timeout_ms,
        )

    def _make_isr_sender(self) -> IsrSender:
        return IsrSender(
            self.facts,
            self.registration,
            self.controller,
            metadata=self.metadata,
            live=self.live,
            table=self.table,
            parked=self.parked,
            counters=self.counters,
        )

    def _make_replica_reader(self) -> ReplicaReader:
        return ReplicaReader(
            self.reader,
            clock=self.clock,
            throttle=self.leader_throttle,
            suspects=self.suspects,
            parked=self.parked,
            on_follower=self.isr_sender.consider,
        )

    def fetcher_parts(self) -> FetcherParts:
        """Parts for the fetchers of what this broker follows."""
        return FetcherParts(
            facts=self.facts,
            registration=self.registration,
            metadata=self.metadata,
            throttle=self.follower_throttle,
            appender=self.appender,
            group_commits=self.group_commits,
            disks=self.disks,
            log_moves=self.log_moves,
        )

    # -- metadata

    def _set_throttles(self, change: MetadataChange) -> None:
        self.leader_throttle.configure(change.image)
        self.follower_throttle.configure(change.image)
