"""Authorization of RPCs about share groups."""

from tidemark.model.authorization import (
    CLUSTER,
    MEMBER,
    Operation,
    Requester,
    Resource,
    group_resource,
)
from tidemark.model.errors import ErrorCode, TidemarkError

from share_coordinator.shell.node import ShareCoordinatorNode


def check_group(
    node: ShareCoordinatorNode, requester: Requester, operation: Operation, group_id: str
) -> None:
    """Raise TidemarkError for a caller that is not allowed."""
    if not may(node, requester, operation, group_resource(group_id)):
        words = f"{requester.principal} may not {operation.name} group {group_id}"
        raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, words)


def check_cluster(node: ShareCoordinatorNode, requester: Requester = MEMBER) -> None:
    """Raise TidemarkError for a caller that is no broker."""
    if not may(node, requester, Operation.CLUSTER_ACTION, CLUSTER):
        words = f"{requester.principal} may not read or write states of share-partitions"
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, words)


def may(
    node: ShareCoordinatorNode, requester: Requester, operation: Operation, resource: Resource
) -> bool:
    """True if a caller is allowed."""
    return node.authorizer.authorize(requester, operation, resource)
