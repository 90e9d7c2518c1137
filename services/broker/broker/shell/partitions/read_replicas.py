"""ReadReplicas: followers that consumers may read from instead of this broker (KIP-392)."""

from collections.abc import Iterator

from tidemark.model.ids import BrokerId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.read_replica import Candidate, preferred_follower
from broker.shell.partitions.hosted import HostedPartition


class ReadReplicas:
    """In-sync followers of the partitions that this broker leads, with their racks."""

    def __init__(self, broker_id: BrokerId, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._metadata = metadata

    def preferred(
        self, hosted: HostedPartition, fetch_offset: int, *, rack: str, listener: str
    ) -> BrokerId | None:
        """Return the follower that a consumer in ``rack`` should read a led partition from; None:
        the leader. ``listener``: the one that the consumer uses.
        """
        own = self._metadata.image.brokers.get(self._broker_id)
        if not rack or own is None:
            return None
        followers = self._followers(hosted, rack, listener)
        return preferred_follower(rack, own.rack or "", fetch_offset, followers)

    def _followers(self, hosted: HostedPartition, rack: str, listener: str) -> Iterator[Candidate]:
        """Yield the in-sync followers in a rack that the consumer can reach."""
        replica_set, brokers = hosted.partition.replica_set, self._metadata.image.brokers
        for member in replica_set.isr.agreed:
            progress, broker = replica_set.progress.get(member), brokers.get(member)
            if (
                progress is not None
                and broker is not None
                and broker.rack == rack
                and not broker.fenced
                and not broker.shutting_down
                and broker.endpoint(listener) is not None
            ):
                yield Candidate(
                    member, rack, progress.log_start, progress.log_end, progress.caught_up_at
                )
