"""All APIs of this broker's Kafka listeners, bound to the objects that each handler uses.

Hot APIs are answered inside the connection's callback. Those of the long tail run as tasks over
decoded requests. An API without a row here is not advertised.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from tidemark.kafka.api_versions import FinalizedFeature
from tidemark.kafka.apis import ApiKey
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.client_telemetry.receiver import ClientTelemetry
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.kafka import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    api_versions,
    client_quotas,
    config_resources,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    partition_reassignments,
    produce,
    sasl_state,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    telemetry,
    txn_offset_commit,
    unregister_broker,
    update_features,
    user_credentials,
    write_txn_markers,
)
from broker.shell.kafka.fetching import FetchParts
from broker.shell.kafka.produce_parts import ProduceParts
from broker.shell.kafka.share_parts import ShareParts
from broker.shell.listener.request_router import Handler, HotHandler, RequestRouter
from broker.shell.listener.traced_router import TracedRouter
from broker.shell.partitions.directory_spaces import DirectorySpaces
from broker.shell.request_spans import SpannedTimes
from broker.shell.rooms import (
    ClusterRoom,
    GroupRoom,
    PartitionRoom,
    ReplicationRoom,
    ShareRoom,
    TransactionRoom,
)


def make_router(
    facts: BrokerFacts,
    cache: MetadataCache,
    counters: BrokerCounters,
    *,
    cluster: ClusterRoom,
    partitions: PartitionRoom,
    replication: ReplicationRoom,
    transactions: TransactionRoom,
    groups: GroupRoom,
    shares: ShareRoom,
    telemetry_receiver: ClientTelemetry | None,
) -> RequestRouter:
    """Make the router with every handler."""
    finalized = api_versions.finalized_features(verifies=transactions.verifier is not None)
    hot: dict[ApiKey, HotHandler] = {
        ApiKey.PRODUCE: partial(
            produce.handle,
            ProduceParts(
                facts=facts,
                metadata=cache,
                table=partitions.table,
                appender=partitions.appender,
                parked=partitions.parked,
                counters=counters,
                inspection=partitions.inspection,
                verifier=transactions.verifier,
            ),
        ),
        ApiKey.FETCH: partial(
            fetch.handle,
            FetchParts(
                facts=facts,
                metadata=cache,
                table=partitions.table,
                reader=partitions.reader,
                replica_reader=replication.replica_reader,
                parked=partitions.parked,
                fetch_sessions=partitions.fetch_sessions,
                counters=counters,
                read_replicas=partitions.read_replicas,
            ),
        ),
        **share_apis(facts, cache, counters, partitions=partitions, shares=shares),
        ApiKey.LIST_OFFSETS: partial(
            list_offsets.handle, facts, partitions.table, partitions.lookup
        ),
        ApiKey.METADATA: partial(metadata.handle, facts, cache, cluster.auto_creation),
        ApiKey.API_VERSIONS: partial(api_versions.handle, facts.quotas, cache, finalized),
    }
    long_tail = {
        **topic_apis(facts, cache, cluster),
        **cluster_apis(facts, cache, cluster, groups),
        **partition_apis(facts, partitions, replication, groups),
        **transaction_apis(facts, cache, cluster, transactions),
        **group_apis(facts, cache, groups),
        **share_group_apis(facts, cache, cluster, groups),
        **feature_apis(facts, finalized),
        **telemetry_apis(telemetry_receiver),
    }
    if isinstance(counters.times, SpannedTimes):
        spans = counters.times
        return TracedRouter(counters, hot, long_tail, facts.quotas, spans=spans, metadata=cache)
    return RequestRouter(counters, hot, long_tail, facts.quotas)


def share_apis(
    facts: BrokerFacts,
    cache: MetadataCache,
    counters: BrokerCounters,
    *,
    partitions: PartitionRoom,
    shares: ShareRoom,
) -> Mapping[ApiKey, HotHandler]:
    """Handlers of share-partitions that this broker leads."""
    parts = ShareParts(
        facts=facts,
        metadata=cache,
        shares=shares.partitions,
        reader=shares.reader,
        parked=partitions.parked,
        counters=counters,
    )
    return {
        ApiKey.SHARE_FETCH: partial(share_fetch.handle, parts),
        ApiKey.SHARE_ACKNOWLEDGE: partial(share_acknowledge.handle, parts),
    }


def topic_apis(
    facts: BrokerFacts, cache: MetadataCache, cluster: ClusterRoom
) -> Mapping[ApiKey, Handler]:
    """Handlers that read topics from the metadata, or have the controller change them."""
    relay = cluster.relay
    return {
        ApiKey.CREATE_TOPICS: partial(create_topics.handle, facts, cache, relay),
        ApiKey.DELETE_TOPICS: partial(delete_topics.handle, facts, cache, relay),
        ApiKey.CREATE_PARTITIONS: partial(create_partitions.handle, facts, cache, relay),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: partial(describe_topic_partitions.handle, facts, cache),
        ApiKey.ELECT_LEADERS: partial(elect_leaders.handle, facts, relay),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(partition_reassignments.alter, facts, relay),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(
            partition_reassignments.list_ongoing, facts, cache
        ),
    }


def cluster_apis(
    facts: BrokerFacts, cache: MetadataCache, cluster: ClusterRoom, groups: GroupRoom
) -> Mapping[ApiKey, Handler]:
    """Handlers about brokers, coordinators and configuration."""
    coordinator = groups.coordinator
    return {
        ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster.handle, facts, cache),
        ApiKey.DESCRIBE_QUORUM: partial(describe_quorum.handle, facts, cluster.relay),
        ApiKey.UNREGISTER_BROKER: partial(unregister_broker.handle, facts, cluster.relay),
        ApiKey.FIND_COORDINATOR: partial(
            find_coordinator.handle, facts, cache, cluster.internal_topics, cluster.live
        ),
        ApiKey.DESCRIBE_CONFIGS: partial(describe_configs.handle, facts, cache),
        ApiKey.LIST_CONFIG_RESOURCES: partial(config_resources.handle, facts, cache),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(
            alter_configs.handle_incremental, facts, cache, cluster.relay, coordinator
        ),
        ApiKey.ALTER_CONFIGS: partial(
            alter_configs.handle_replace, facts, cache, cluster.relay, coordinator
        ),
        ApiKey.DESCRIBE_ACLS: partial(acls.describe, facts, cache),
        ApiKey.CREATE_ACLS: partial(acls.create, facts, cluster.relay),
        ApiKey.DELETE_ACLS: partial(acls.delete, facts, cluster.relay),
        ApiKey.SASL_HANDSHAKE: sasl_state.handshake,
        ApiKey.SASL_AUTHENTICATE: sasl_state.authenticate,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(client_quotas.describe, facts, cache),
        ApiKey.ALTER_CLIENT_QUOTAS: partial(client_quotas.alter, facts, cluster.relay),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(user_credentials.describe, facts, cache),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: partial(user_credentials.alter, facts, cluster.relay),
    }


def feature_apis(
    facts: BrokerFacts, finalized: Sequence[FinalizedFeature]
) -> Mapping[ApiKey, Handler]:
    """Handlers about features, of which ``finalized`` are."""
    return {ApiKey.UPDATE_FEATURES: partial(update_features.handle, facts, finalized)}


def telemetry_apis(receiver: ClientTelemetry | None) -> Mapping[ApiKey, Handler]:
    """Handlers of clients' metrics; none without a receiver, as in Kafka."""
    if receiver is None:
        return {}
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: partial(telemetry.subscriptions, receiver),
        ApiKey.PUSH_TELEMETRY: partial(telemetry.push, receiver),
    }


def partition_apis(
    facts: BrokerFacts,
    partitions: PartitionRoom,
    replication: ReplicationRoom,
    groups: GroupRoom,
) -> Mapping[ApiKey, Handler]:
    """Handlers about partitions on this broker's disks."""
    table, disks = partitions.table, partitions.disks
    return {
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(offset_for_leader_epoch.handle, facts, table),
        ApiKey.DELETE_RECORDS: partial(delete_records.handle, partitions.deletion),
        ApiKey.ALTER_REPLICA_LOG_DIRS: partial(
            alter_replica_log_dirs.handle, facts, replication.moves
        ),
        ApiKey.DESCRIBE_LOG_DIRS: partial(
            describe_log_dirs.handle, facts, table, disks, DirectorySpaces()
        ),
        ApiKey.DESCRIBE_PRODUCERS: partial(describe_producers.handle, facts, table),
        ApiKey.WRITE_TXN_MARKERS: partial(write_txn_markers.handle, facts, table, groups.markers),
    }


def transaction_apis(
    facts: BrokerFacts,
    cache: MetadataCache,
    cluster: ClusterRoom,
    transactions: TransactionRoom,
) -> Mapping[ApiKey, Handler]:
    """Handlers that ask the coordinators of transactions."""
    relay, topics = transactions.relay, cluster.internal_topics
    return {
        ApiKey.INIT_PRODUCER_ID: partial(
            init_producer_id.handle, facts, topics, relay, transactions.producer_ids
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: partial(add_partitions_to_txn.handle, facts, relay),
        ApiKey.ADD_OFFSETS_TO_TXN: partial(add_offsets_to_txn.handle, facts, topics, relay),
        ApiKey.END_TXN: partial(end_txn.handle, facts, relay),
        ApiKey.DESCRIBE_TRANSACTIONS: partial(describe_transactions.handle, facts, relay),
        ApiKey.LIST_TRANSACTIONS: partial(
            list_transactions.handle, facts, cache, relay, cluster.live
        ),
    }


def group_apis(
    facts: BrokerFacts, cache: MetadataCache, groups: GroupRoom
) -> Mapping[ApiKey, Handler]:
    """Handlers that ask the group coordinator."""
    coordinator = groups.coordinator
    return {
        ApiKey.JOIN_GROUP: partial(join_group.handle, facts, coordinator),
        ApiKey.SYNC_GROUP: partial(sync_group.handle, facts, coordinator),
        ApiKey.HEARTBEAT: partial(heartbeat.handle, facts, coordinator),
        ApiKey.LEAVE_GROUP: partial(leave_group.handle, facts, coordinator),
        ApiKey.OFFSET_COMMIT: partial(offset_commit.handle, facts, cache, coordinator),
        ApiKey.OFFSET_FETCH: partial(offset_fetch.handle, facts, cache, coordinator),
        ApiKey.OFFSET_DELETE: partial(offset_delete.handle, facts, cache, coordinator),
        ApiKey.TXN_OFFSET_COMMIT: partial(txn_offset_commit.handle, facts, cache, coordinator),
        ApiKey.DESCRIBE_GROUPS: partial(describe_groups.handle, facts, coordinator),
        ApiKey.LIST_GROUPS: partial(
            list_groups.handle, facts, cache, coordinator, groups.share_relay
        ),
        ApiKey.DELETE_GROUPS: partial(delete_groups.handle, facts, coordinator, groups.share_relay),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: partial(
            consumer_group_heartbeat.handle, facts, coordinator
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: partial(consumer_group_describe.handle, facts, coordinator),
    }


def share_group_apis(
    facts: BrokerFacts, cache: MetadataCache, cluster: ClusterRoom, groups: GroupRoom
) -> Mapping[ApiKey, Handler]:
    """Handlers that ask the coordinators of share groups."""
    relay = groups.share_relay
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: partial(
            share_group_heartbeat.handle, facts, cluster.internal_topics, relay
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: partial(share_group_describe.handle, facts, relay),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: partial(
            describe_share_group_offsets.handle,
            facts,
            cache,
            relay,
            groups.share_lag,
            groups.letter_problems,
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: partial(
            alter_share_group_offsets.handle, facts, cache, relay
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: partial(
            delete_share_group_offsets.handle, facts, cache, relay
        ),
    }
