"""LiveBrokers: the brokers that may be in an ISR, as the metadata shows them."""

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.subscribers import LIVE_BROKERS


class LiveBrokers:
    """Registered brokers that are neither fenced nor stopping."""

    __slots__ = ("epochs",)

    def __init__(self, metadata: MetadataCache) -> None:
        self.epochs: dict[BrokerId, BrokerEpoch] = {}
        """Broker epochs by broker id."""
        metadata.subscribe(LIVE_BROKERS, Kind.BROKERS, self._follow)

    def _follow(self, change: MetadataChange) -> None:
        self.epochs = {
            one.broker_id: one.broker_epoch
            for one in change.image.brokers.values()
            if not one.fenced and not one.shutting_down
        }
