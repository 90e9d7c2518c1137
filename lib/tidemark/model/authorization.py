"""Authorization: the check that every API and RPC makes before it acts.

Numbers are Kafka's (AclOperation, ResourceType), because they appear on the wire, in
authorized-operations masks and ACLs.
"""

from enum import IntEnum
from typing import Final, NamedTuple


class Operation(IntEnum):
    """Operation on a resource (org.apache.kafka.common.acl.AclOperation)."""

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
    """Type of a resource (org.apache.kafka.common.resource.ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Requester(NamedTuple):
    """Principal of a request, as ``User:alice``, and the IP address from which it came."""

    principal: str
    host: str


ANONYMOUS: Final = "User:ANONYMOUS"
"""Principal of a client that did not authenticate, as in Kafka."""


PROCESS: Final = "Process:tidemark"
"""Principal of the processes of the cluster. No client can log in as it: a client's principal
begins with ``User:``.
"""

MEMBER: Final = Requester(PROCESS, "")
"""Another process of the cluster, which may do everything. It is known by its certificate where
mutual TLS is on; the listeners for processes belong in a private network where it is not.
"""


class Resource(NamedTuple):
    """One resource."""

    resource_type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The cluster itself, by the name that Kafka's tools expect."""

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""Mask of authorized operations in a reply to a client that did not request it (KIP-430)."""

# As AclEntry.supportedOperations: a mask contains only operations that fit its resource type.
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
    """Return the resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def group_resource(name: str) -> Resource:
    """Return the resource of a consumer or share group."""
    return Resource(ResourceType.GROUP, name)


def transactional_id_resource(transactional_id: str) -> Resource:
    """Return the resource of a transactional id."""
    return Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)


class Authorizer:
    """Authorizer that allows everything: there are no rules. Callers must not assume its answer."""

    has_rules: bool = False
    """True if ACLs are enforced (authorizer.class.name)."""

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Return True if the requester may do ``operation`` to ``resource``."""
        assert operation in SUPPORTED_OPERATIONS[resource.resource_type], (operation, resource)
        return True

    def sees(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Return True as ``authorize`` does, for a resource that the requester did not name: a list
        leaves out those that it may not see, and for an audit it has not attempted to.
        """
        return self.authorize(requester, operation, resource)

    def authorize_any(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True if the requester may do ``operation`` to at least one resource of a type,
        which need not exist (KIP-679).
        """
        assert operation in SUPPORTED_OPERATIONS[resource_type], (operation, resource_type)
        return True

    def authorized_operations(self, requester: Requester, resource: Resource) -> int:
        """Return KIP-430's mask as an int32: bit n is set if operation number n is allowed. As in
        Kafka, it is 0 for who may not describe the resource.
        """
        if not self.sees(requester, Operation.DESCRIBE, resource):
            return 0
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource.resource_type]
            if self.sees(requester, operation, resource)
        )
