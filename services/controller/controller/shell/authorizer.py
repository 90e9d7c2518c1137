"""Who may do what. Every RPC passes here; until there are ACLs everyone may."""

from enum import Enum


class Operation(Enum):
    """Kafka's operations, as far as a controller is asked for them."""

    CLUSTER_ACTION = "cluster-action"  # what brokers and coordinators do
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    ALTER_CONFIGS = "alter-configs"


class Authorizer:
    """Allows everything."""

    def authorize(self, principal: str, operation: Operation, resource: str) -> bool:
        """Whether ``principal`` may; ``resource`` is "topic:<name>", "broker:<id>",
        "coordinator:<kind>:<id>" or "cluster".
        """
        del principal, operation, resource
        return True
