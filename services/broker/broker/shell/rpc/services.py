"""The gRPC services of a broker, bound to the objects that each uses."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.traffic import Traffic
from broker.shell.rooms import ClusterRoom, GroupRoom, PartitionRoom, ShareRoom, TransactionRoom
from broker.shell.rpc import (
    diagnostics,
    partition_store,
    share_groups,
    share_transactions,
    share_views,
    transaction_markers,
    transaction_relay,
)
from broker.shell.rpc.append_stream import AppendParts
from broker.shell.rpc.descriptions import Descriptions
from broker.shell.rpc.fetch_stream import FetchStreamParts
from broker.shell.rpc.offset_queries import OffsetQueries

SERVICE_NAMES: Final = (
    partition_store.SERVICE_NAME,
    transaction_markers.SERVICE_NAME,
    transaction_relay.SERVICE_NAME,
    share_groups.SERVICE_NAME,
    share_views.SERVICE_NAME,
    share_transactions.SERVICE_NAME,
    diagnostics.SERVICE_NAME,
)


class GrpcServices(NamedTuple):
    """Servicers of one broker."""

    store: partition_store.PartitionStore
    markers: transaction_markers.TransactionMarkers
    relay: transaction_relay.TransactionRelay
    share_groups: share_groups.ShareGroups
    share_views: share_views.SharePartitionViews
    share_transactions: share_transactions.ShareTransactions
    diagnostics: diagnostics.BrokerDiagnostics

    def register(self, server: Any) -> None:
        """Add all servicers to a gRPC server."""
        registrations: tuple[Callable[[Any], None], ...] = (
            partition_store.registration(self.store),
            transaction_markers.registration(self.markers),
            transaction_relay.registration(self.relay),
            share_groups.registration(self.share_groups),
            share_views.registration(self.share_views),
            share_transactions.registration(self.share_transactions),
            diagnostics.registration(self.diagnostics),
        )
        for add in registrations:
            add(server)


def make_services(
    facts: BrokerFacts,
    metadata: MetadataCache,
    *,
    cluster: ClusterRoom,
    partitions: PartitionRoom,
    transactions: TransactionRoom,
    groups: GroupRoom,
    shares: ShareRoom,
    counters: BrokerCounters,
) -> GrpcServices:
    """Make the servicers."""
    table = partitions.table
    store = partition_store.PartitionStore(
        AppendParts(
            facts=facts,
            table=table,
            appender=partitions.appender,
            parked=partitions.parked,
            inspection=partitions.inspection,
            verifier=transactions.verifier,
        ),
        FetchStreamParts(
            facts=facts,
            table=table,
            reader=partitions.reader,
            disks=partitions.disks,
            parked=partitions.parked,
        ),
        OffsetQueries(facts, table, partitions.lookup),
        Descriptions(facts, metadata, cluster.auto_creation, transactions.producer_ids),
        partitions.deletion,
        bytes_in_flight_max=facts.config.grpc_bulk_bytes_in_flight_max,
    )
    return GrpcServices(
        store,
        transaction_markers.TransactionMarkers(facts, table, groups.markers),
        transaction_relay.TransactionRelay(facts, transactions.relay, cluster.internal_topics),
        share_groups.ShareGroups(facts, groups.coordinator, shares.partitions),
        share_views.SharePartitionViews(facts, shares.inspector),
        share_transactions.ShareTransactions(
            facts, metadata, shares.partitions, transactions.relay
        ),
        diagnostics.BrokerDiagnostics(
            facts, counters.times, Traffic(counters, table, facts.clock), groups.lag
        ),
    )
