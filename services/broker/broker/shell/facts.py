"""BrokerFacts: what holds for the whole life of one broker process."""

from dataclasses import dataclass

from tidemark.model.backoff import Dice
from tidemark.model.ids import BrokerId
from tidemark.runtime.clock import Clock

from broker.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Settings, time and chance, as given at the start."""

    broker_id: BrokerId
    config: BrokerConfig
    clock: Clock
    dice: Dice
    """Spreads retries."""
