"""BrokerFacts: constants of one broker process."""

from dataclasses import dataclass

from tidemark.model.authorization import Authorizer
from tidemark.model.backoff import Dice
from tidemark.model.ids import BrokerId
from tidemark.protocol.acl_authorizer import AclAuthorizer
from tidemark.protocol.audit import AuditTrail
from tidemark.runtime.clock import Clock

from broker.config import BrokerConfig
from broker.shell.audited_authorizer import AuditedAuthorizer
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
    audit: AuditTrail | None = None
    """Entries of the audit; None without one."""

    @staticmethod
    def of(config: BrokerConfig, clock: Clock, dice: Dice) -> "BrokerFacts":
        """Facts of a broker without quotas yet."""
        broker_id, quotas = BrokerId(config.broker_id), Throttling(clock)
        policy = config.acl_policy
        audit, authorizer = config.audit_trail, Authorizer()
        if policy is not None and audit is None:
            authorizer = AclAuthorizer(policy)
        elif policy is not None and audit is not None:
            authorizer = AuditedAuthorizer(policy, audit, clock.wall_ms)
        return BrokerFacts(broker_id, config, clock, dice, authorizer, quotas, audit)
