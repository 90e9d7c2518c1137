"""Who may do what to which resource: the one question that every API and RPC asks before it acts.

Numbers are Kafka's (AclOperation, ResourceType), because the wire shows them: in
authorized-operations masks and ACLs.
"""

from enum import IntEnum
from typing import Final, NamedTuple


class Operation(IntEnum):
    """What is done to a resource (org.apache.kafka.common.acl.AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kinds of things that are guarded (org.apache.kafka.common.resource.ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """One guarded thing."""

    resource_type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The cluster itself; the name is the one that Kafka's tools expect."""

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""What a mask of authorized operations says when the client did not ask for it (KIP-430)."""

# AclEntry.supportedOperations: a mask only ever names what makes sense for its kind of resource.
SUPPORTED_OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
}


def topic_resource(name: str) -> Resource:
    """A topic, as something to guard."""
    return Resource(ResourceType.TOPIC, name)


def group_resource(name: str) -> Resource:
    """A consumer or share group, as something to guard."""
    return Resource(ResourceType.GROUP, name)


def transactional_id_resource(transactional_id: str) -> Resource:
    """A transactional id, as something to guard."""
    return Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)


class Authorizer:
    """Answers yes to all: the place where rules will be. Callers never assume the answer."""

    def authorize(self, principal: str, operation: Operation, resource: Resource) -> bool:
        """Whether ``principal`` (``User:alice``) may do ``operation`` to ``resource``."""
        assert operation in SUPPORTED_OPERATIONS[resource.resource_type], (operation, resource)
        return True

    def authorized_operations(self, principal: str, resource: Resource) -> int:
        """KIP-430's mask: bit n is set when the operation numbered n is allowed; as the int32 of
        the wire.
        """
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource.resource_type]
            if self.authorize(principal, operation, resource)
        )
