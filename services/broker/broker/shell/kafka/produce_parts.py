"""ProduceParts: parts of the broker that Produce requests use."""

from dataclasses import dataclass

from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.inspection import Inspection
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.table import PartitionTable
from broker.shell.transactions.txn_verifier import TxnVerifier


@dataclass(frozen=True, slots=True)
class ProduceParts:
    """Parts of the broker that Produce requests use."""

    facts: BrokerFacts
    metadata: MetadataCache
    table: PartitionTable
    appender: PartitionAppender
    parked: ParkingLot
    counters: BrokerCounters
    inspection: Inspection
    verifier: TxnVerifier | None
    """None: transaction.partition.verification.enable is off."""
