"""Who may do what. Every RPC passes here; until there are ACLs everyone may."""

from enum import Enum


class Operation(Enum):
    """Kafka's operations, as far as a transaction coordinator is asked for them."""

    WRITE = "write"
    DESCRIBE = "describe"


class Authorizer:
    """Allows everything."""

    def authorize(self, principal: str, operation: Operation, resource: str) -> bool:
        """Whether ``principal`` may; ``resource`` is "transactional-id:<id>" or "cluster"."""
        del principal, operation, resource
        return True
