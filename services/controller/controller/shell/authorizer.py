"""Authorization of RPCs. Until there are ACLs everything is allowed."""

from enum import Enum


class Operation(Enum):
    """Kafka's operations that requests to a controller need."""

    CLUSTER_ACTION = "cluster-action"  # requests of brokers and coordinators about themselves
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    ALTER_CONFIGS = "alter-configs"


class Authorizer:
    """Authorizer that allows everything."""

    def authorize(self, principal: str, operation: Operation, resource: str) -> bool:
        """True if ``principal`` is allowed. ``resource`` is "topic:<name>", "broker:<id>",
        "coordinator:<kind>:<id>" or "cluster".
        """
        del principal, operation, resource
        return True
