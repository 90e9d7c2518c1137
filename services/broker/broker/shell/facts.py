"""BrokerFacts: constants of one broker process."""

from dataclasses import dataclass

from tidemark.model.authorization import Authorizer
from tidemark.model.backoff import Dice
from tidemark.model.ids import BrokerId
from tidemark.protocol.acl_authorizer import AclAuthorizer
from tidemark.runtime.clock import Clock

from broker.config import BrokerConfig
from broker.shell.throttling import Throttling


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Settings, time and chance, set at the start of the process."""

    broker_id: BrokerId
    config: BrokerConfig
    clock: Clock
    dice: Dice
    """Spreads retries."""
    authorizer: Authorizer
    quotas: Throttling

    @staticmethod
    def of(config: BrokerConfig, clock: Clock, dice: Dice) -> "BrokerFacts":
        """Facts of a broker without quotas yet."""
        broker_id, quotas = BrokerId(config.broker_id), Throttling(clock)
        policy = config.acl_policy
        authorizer = Authorizer() if policy is None else AclAuthorizer(policy)
        return BrokerFacts(broker_id, config, clock, dice, authorizer, quotas)
