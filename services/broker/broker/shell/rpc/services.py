"""The gRPC services of a broker, bound to the objects that each uses."""

from collections.abc import Callable
from functools import partial
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
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.descriptions import Descriptions, client_address, process_address
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


CLIENT_SERVICE_NAMES: Final = tuple(
    name
    for name in SERVICE_NAMES
    if name not in (transaction_markers.SERVICE_NAME, share_groups.SERVICE_NAME)
)
"""Without the services that only processes of the cluster call."""


class GrpcServices(NamedTuple):
    """Servicers of one broker."""

    store: partition_store.PartitionStore
    client_store: partition_store.PartitionStore
    """The same for the listener GRPC, with its addresses."""
    markers: transaction_markers.TransactionMarkers
    relay: transaction_relay.TransactionRelay
    share_groups: share_groups.ShareGroups
    share_views: share_views.SharePartitionViews
    share_transactions: share_transactions.ShareTransactions
    diagnostics: diagnostics.BrokerDiagnostics

    def register(self, server: Any) -> None:
        """Add all servicers to the gRPC server of processes."""
        registrations: tuple[Callable[[Any], None], ...] = (
            partition_store.registration(self.store),
            transaction_markers.registration(self.markers),
            share_groups.registration(self.share_groups),
            *self._for_everybody(),
        )
        for add in registrations:
            add(server)

    def register_for_clients(self, server: Any) -> None:
        """Add the servicers of CLIENT_SERVICE_NAMES to the gRPC server of the listener GRPC."""
        for add in (partition_store.registration(self.client_store), *self._for_everybody()):
            add(server)

    def _for_everybody(self) -> tuple[Callable[[Any], None], ...]:
        return (
            transaction_relay.registration(self.relay),
            share_views.registration(self.share_views),
            share_transactions.registration(self.share_transactions),
            diagnostics.registration(self.diagnostics),
        )


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
    make_store = partial(
        partition_store.PartitionStore,
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
        deletion=partitions.deletion,
        bytes_in_flight=ByteBudget(facts.config.grpc_bulk_bytes_in_flight_max),
    )
    describe = partial(
        Descriptions, facts, metadata, cluster.auto_creation, transactions.producer_ids
    )
    return GrpcServices(
        make_store(describe(address_of=process_address)),
        make_store(describe(address_of=client_address)),
        transaction_markers.TransactionMarkers(facts, table, groups.markers),
        transaction_relay.TransactionRelay(facts, transactions.relay, cluster.internal_topics),
        share_groups.ShareGroups(facts, groups.coordinator, shares.partitions),
        share_views.SharePartitionViews(facts, metadata, shares.inspector),
        share_transactions.ShareTransactions(
            facts, metadata, shares.partitions, transactions.relay
        ),
        diagnostics.BrokerDiagnostics(
            facts, counters.times, Traffic(counters, table, facts.clock), groups.lag
        ),
    )
