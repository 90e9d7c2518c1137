"""BrokerFacts: constants of one broker process."""

from dataclasses import dataclass

from tidemark.model.authorization import Authorizer
from tidemark.model.backoff import Dice
from tidemark.model.ids import BrokerId
from tidemark.runtime.clock import Clock

from broker.config import BrokerConfig
from broker.core.quotas import Quotas


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Settings, time and chance, set at the start of the process."""

    broker_id: BrokerId
    config: BrokerConfig
    clock: Clock
    dice: Dice
    """Spreads retries."""
    authorizer: Authorizer
    quotas: Quotas

    @staticmethod
    def of(config: BrokerConfig, clock: Clock, dice: Dice) -> "BrokerFacts":
        """Facts of a broker that allows every operation and sets no quotas."""
        return BrokerFacts(BrokerId(config.broker_id), config, clock, dice, Authorizer(), Quotas())
