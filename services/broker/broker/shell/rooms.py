"""Rooms of a broker: its long-lived objects, grouped, and the functions that build each group.

BrokerServer builds the rooms in the order of this module: each function takes the rooms before it.
``kafka/apis.py`` and ``rpc/services.py`` bind the handlers of requests to objects of the rooms. No
other module is given a room: objects take the single objects that they use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.metadata_change import Kind
from tidemark.model.topics import SHARE_GROUP_STATE
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.log_ends import LogEnds
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.producer_ids import ProducerIds
from tidemark.runtime.worker_pool import WorkerPool
from tidemark.storage.disk import Disk

from broker.core.fetch_sessions import FetchSessions
from broker.core.unread_bytes import UNKNOWN_BYTES
from broker.shell.cluster.auto_creation import AutoCreation
from broker.shell.cluster.controller_relay import ControllerRelay
from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.cluster.registration import Registration
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.groups.coordinator import Groups
from broker.shell.groups.group_lag import GroupLag
from broker.shell.groups.group_log import GroupLog
from broker.shell.groups.letter_problems import LetterProblems
from broker.shell.groups.share_lag import ShareLag
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.directory_moves import DirectoryMoves
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosting import Hosting
from broker.shell.partitions.inspection import Inspection
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.partitions.offset_lookup import OffsetLookup
from broker.shell.partitions.parking_lot import ParkingLot, parked_limits
from broker.shell.partitions.read_replicas import ReadReplicas
from broker.shell.partitions.reader import PartitionReader
from broker.shell.partitions.record_deletion import RecordDeletion
from broker.shell.partitions.table import PartitionTable
from broker.shell.replication.fetcher import FetcherParts
from broker.shell.replication.isr_sender import IsrSender
from broker.shell.replication.leader_connection import Connect
from broker.shell.replication.manager import ReplicationManager
from broker.shell.replication.replica_reader import ReplicaReader
from broker.shell.replication.replica_reports import ReplicaReports
from broker.shell.replication.suspects import Suspects
from broker.shell.replication.throttles import Throttles
from broker.shell.settings import BrokerSettings
from broker.shell.share.batch_keys import BatchKeys
from broker.shell.share.inspection import ShareInspector
from broker.shell.share.letter_copier import LetterCopier
from broker.shell.share.reading import ShareReader
from broker.shell.share.share_partitions import SharePartitions
from broker.shell.share.start_offsets import StartOffsets
from broker.shell.share.state import ShareState
from broker.shell.subscribers import ACT_FIRST, ACT_THEN, GROUPS, SHARES
from broker.shell.transactions.marker_writer import MarkerWriter
from broker.shell.transactions.producer_ids import from_controller
from broker.shell.transactions.txn_relay import TxnRelay
from broker.shell.transactions.txn_verifier import TxnVerifier
from broker.shell.upkeep.cleaning import Cleaning
from broker.shell.upkeep.maintenance import Maintenance
from broker.shell.upkeep.moving import Moving
from broker.storage.log_manager import LogManager


def make_metadata() -> MetadataCache:
    """Make an empty cache with the broker's order of subscribers."""
    return MetadataCache(first=ACT_FIRST, then=ACT_THEN)


@dataclass(frozen=True, slots=True)
class ClusterRoom:
    """The broker's place in the cluster, and its requests to the controller."""

    controller: ControllerClient
    registration: Registration
    live: LiveBrokers
    relay: ControllerRelay
    internal_topics: InternalTopics
    auto_creation: AutoCreation


def build_cluster(
    facts: BrokerFacts,
    metadata: MetadataCache,
    counters: BrokerCounters,
    controller: ControllerClient,
) -> ClusterRoom:
    """Build the cluster's room."""
    live = LiveBrokers(metadata)
    relay = ControllerRelay(controller, metadata, facts.clock)
    return ClusterRoom(
        controller=controller,
        registration=Registration(facts.broker_id),
        live=live,
        relay=relay,
        internal_topics=InternalTopics(
            facts.config, relay, metadata=metadata, live=live, counters=counters
        ),
        auto_creation=AutoCreation(facts, relay, metadata),
    )


@dataclass(frozen=True, slots=True)
class WorkerPools:
    """Worker processes that walk records."""

    inspection: WorkerPool
    """Batches that are to be appended."""
    lookups: WorkerPool
    """Records of a point in time."""


@dataclass(frozen=True, slots=True)
class PartitionRoom:
    """The partitions on this broker's disks: how they are found, appended to and read."""

    table: PartitionTable
    fetch_sessions: FetchSessions[FetchPartition]
    parked: ParkingLot
    disks: DiskHealth
    group_commits: GroupCommits
    appender: PartitionAppender
    reader: PartitionReader
    read_replicas: ReadReplicas | None
    """Followers that consumers may read from; None: they read from leaders."""
    log_moves: LogMoves
    deletion: RecordDeletion
    inspection: Inspection
    lookup: OffsetLookup
    has_lease: Callable[[], bool]


def build_partitions(
    facts: BrokerFacts,
    metadata: MetadataCache,
    counters: BrokerCounters,
    pools: WorkerPools,
    *,
    log_managers: Sequence[LogManager],
    failed_directories: Sequence[str],
    draw_session_id: Callable[[], int],
    has_lease: Callable[[], bool],
) -> PartitionRoom:
    """Build the partitions' room. ``failed_directories``: directories of log.dirs that did not
    open. ``has_lease`` returns True while no other broker can lead what this one leads.
    """
    config, clock = facts.config, facts.clock
    table = PartitionTable(facts.broker_id, metadata)
    fetch_sessions: FetchSessions[FetchPartition] = FetchSessions(
        draw_session_id, sessions_max=config.max_incremental_fetch_session_cache_slots
    )
    parked = ParkingLot(
        parked_limits(config), clock, fetch_sessions, tells_followers=config.followers_serve
    )
    disks = DiskHealth(
        log_managers, failed_directories, hosted=table.by_name, parked=parked, counters=counters
    )
    group_commits = GroupCommits(disks.log_managers)
    appender = PartitionAppender(
        clock=clock,
        disks=disks,
        parked=parked,
        fetch_sessions=fetch_sessions,
        group_commits=group_commits,
        counters=counters,
        has_lease=has_lease,
    )
    log_moves = LogMoves(parked)
    return PartitionRoom(
        table=table,
        fetch_sessions=fetch_sessions,
        parked=parked,
        disks=disks,
        group_commits=group_commits,
        appender=appender,
        reader=PartitionReader(disks),
        read_replicas=ReadReplicas(facts.broker_id, metadata) if config.followers_serve else None,
        log_moves=log_moves,
        deletion=RecordDeletion(facts, table, disks, log_moves, parked, appender),
        inspection=Inspection(appender, pools.inspection, clock, counters),
        lookup=OffsetLookup(pools.lookups, disks, counters),
        has_lease=has_lease,
    )


@dataclass(frozen=True, slots=True)
class ReplicationRoom:
    """Replication in both directions: followers of this broker, and leaders that it follows."""

    isr_sender: IsrSender
    replica_reader: ReplicaReader
    suspects: Suspects
    manager: ReplicationManager
    moves: DirectoryMoves
    """Moves of replicas between the directories of this broker."""


def build_replication(
    facts: BrokerFacts,
    metadata: MetadataCache,
    counters: BrokerCounters,
    cluster: ClusterRoom,
    partitions: PartitionRoom,
    connect_leader: Connect,
) -> ReplicationRoom:
    """Build the room of replication."""
    throttles = Throttles(facts.config, metadata)
    suspects = Suspects()
    isr_sender = IsrSender(
        facts,
        cluster.registration,
        cluster.controller,
        metadata=metadata,
        live=cluster.live,
        table=partitions.table,
        parked=partitions.parked,
        counters=counters,
    )
    replica_reader = ReplicaReader(
        partitions.reader,
        clock=facts.clock,
        throttle=throttles.leader,
        suspects=suspects,
        parked=partitions.parked,
        on_follower=isr_sender.consider,
    )
    fetchers = FetcherParts(
        facts=facts,
        registration=cluster.registration,
        metadata=metadata,
        throttle=throttles.follower,
        appender=partitions.appender,
        group_commits=partitions.group_commits,
        disks=partitions.disks,
        log_moves=partitions.log_moves,
        on_readable=partial(partitions.parked.moved, gained_bytes=UNKNOWN_BYTES)
        if facts.config.followers_serve
        else None,
    )
    manager = ReplicationManager(fetchers, connect_leader)
    moves = DirectoryMoves(
        facts,
        metadata,
        table=partitions.table,
        disks=partitions.disks,
        log_moves=partitions.log_moves,
        on_replica_synced=manager.synced,
    )
    return ReplicationRoom(isr_sender, replica_reader, suspects, manager, moves)


@dataclass(frozen=True, slots=True)
class TransactionRoom:
    """Requests to the coordinators of transactions, and what partitions need of them."""

    relay: TxnRelay
    verifier: TxnVerifier | None
    """Asked about transactional batches; None: transaction.partition.verification.enable is
    off.
    """
    producer_ids: ProducerIds


def build_transactions(
    facts: BrokerFacts, metadata: MetadataCache, cluster: ClusterRoom, channels: ChannelPool
) -> TransactionRoom:
    """Build the room of transactions."""
    config = facts.config
    relay = TxnRelay(metadata, channels, facts.dice)
    verifier = None
    if config.transaction_partition_verification_enable:
        verifier = relay.make_verifier(
            config.add_partitions_to_txn_retry_backoff_ms,
            config.add_partitions_to_txn_retry_backoff_max_ms,
        )
    producer_ids = from_controller(cluster.controller, cluster.registration.current)
    return TransactionRoom(relay, verifier, producer_ids)


@dataclass(frozen=True, slots=True)
class GroupRoom:
    """The group coordinator, the markers that end transactions in its partitions and others, and
    requests to the coordinators of share groups.
    """

    coordinator: Groups
    markers: MarkerWriter
    share_relay: ShareRelay
    share_lag: ShareLag
    letter_problems: LetterProblems
    lag: GroupLag
    """Figures for metrics."""


def build_groups(
    facts: BrokerFacts,
    metadata: MetadataCache,
    partitions: PartitionRoom,
    transactions: TransactionRoom,
    channels: ChannelPool,
) -> GroupRoom:
    """Build the room of groups."""
    share_relay = ShareRelay(metadata, channels, facts.dice)
    coordinator = Groups(
        facts.config.group_settings(),
        metadata=metadata,
        hosted=partitions.table.by_name,
        make_log=partial(
            GroupLog,
            appender=partitions.appender,
            parked=partitions.parked,
            disks=partitions.disks,
            has_lease=partitions.has_lease,
            clock=facts.clock,
            timeout_ms=facts.config.offsets_commit_timeout_ms,
        ),
        verifier=transactions.verifier,
        share_groups=share_relay,
        authorizer=facts.authorizer,
        clock=facts.clock,
    )
    metadata.subscribe(GROUPS, Kind.POSITION | Kind.TOPICS_DELETED, coordinator.follow)
    markers = MarkerWriter(
        facts.clock, partitions.appender, partitions.parked, coordinator, share_relay
    )
    lag = GroupLag(
        facts.config,
        coordinator,
        partitions.table.by_name,
        metadata,
        LogEnds(metadata, channels),
        facts.clock,
    )
    return GroupRoom(
        coordinator,
        markers,
        share_relay,
        ShareLag(metadata, channels),
        LetterProblems(metadata, channels),
        lag,
    )


@dataclass(frozen=True, slots=True)
class ShareRoom:
    """Share groups' view of the partitions that this broker leads."""

    partitions: SharePartitions
    reader: ShareReader
    inspector: ShareInspector


def build_shares(
    facts: BrokerFacts,
    metadata: MetadataCache,
    cluster: ClusterRoom,
    partitions: PartitionRoom,
    transactions: TransactionRoom,
    channels: ChannelPool,
    state: ShareState,
    workers: WorkerPool,
) -> ShareRoom:
    """Build the room of share groups. ``state``: the share-coordinators. ``workers`` walk records
    of groups that order them by key, and dead letters.
    """
    keys = BatchKeys(workers, facts.clock)
    reader = ShareReader(partitions.disks, keys)
    copier = LetterCopier(
        facts,
        metadata,
        channels,
        cluster.internal_topics,
        transactions.relay,
        state,
        reader,
        workers,
    )
    shares = SharePartitions(
        facts,
        metadata=metadata,
        table=partitions.table,
        parked=partitions.parked,
        starts=StartOffsets(partitions.lookup, facts.clock),
        state=state,
        keys=keys,
        copier=copier,
        has_lease=partitions.has_lease,
    )
    kinds = Kind.PARTITIONS | Kind.TOPICS_DELETED | Kind.GROUP_CONFIGS
    metadata.subscribe(SHARES, kinds, shares.follow)
    timeout_s = facts.config.share_coordinator_write_timeout_ms / 1_000
    inspector = ShareInspector(
        shares,
        state,
        facts.clock,
        has_groups=lambda: SHARE_GROUP_STATE in metadata.image.topics,
        timeout_s=timeout_s,
    )
    return ShareRoom(shares, reader, inspector)


@dataclass(frozen=True, slots=True)
class UpkeepRoom:
    """Which partitions are hosted, and the loops over their logs."""

    cleaning: Cleaning
    hosting: Hosting
    maintenance: Maintenance
    moving: Moving


def build_upkeep(
    facts: BrokerFacts,
    metadata: MetadataCache,
    counters: BrokerCounters,
    cluster: ClusterRoom,
    partitions: PartitionRoom,
    replication: ReplicationRoom,
    groups: GroupRoom,
    settings: BrokerSettings,
    *,
    cleaners: WorkerPool,
    opener: Callable[[Disk], Callable[[], Disk]],
) -> UpkeepRoom:
    """Build the room of upkeep. ``cleaners`` and ``opener``: see Seams."""
    table, disks = partitions.table, partitions.disks
    cleaning = Cleaning(facts, settings, cleaners, opener, table=table, disks=disks)
    hosting = Hosting(
        facts,
        replication.manager,
        metadata=metadata,
        table=table,
        disks=disks,
        parked=partitions.parked,
        group_commits=partitions.group_commits,
        counters=counters,
        moves=replication.moves,
        on_new_log=cleaning.forget,
        on_retried=groups.coordinator.sync,
    )
    reports = ReplicaReports(
        facts,
        cluster.registration,
        cluster.controller,
        metadata=metadata,
        live=cluster.live,
        table=table,
        disks=disks,
        suspects=replication.suspects,
        hosting=hosting,
    )
    maintenance = Maintenance(
        facts,
        hosting,
        reports,
        settings,
        table=table,
        disks=disks,
        log_moves=partitions.log_moves,
        counters=counters,
        group_commits=partitions.group_commits,
        on_replica_synced=replication.manager.synced,
    )
    moving = Moving(
        facts,
        settings,
        replication.moves,
        disks=disks,
        group_commits=partitions.group_commits,
        on_moved=cleaning.moved,
    )
    return UpkeepRoom(cleaning, hosting, maintenance, moving)
