"""AuditedAuthorizer: an AclAuthorizer whose decisions about clients are written down.

It stands where the other one does, so that every API and RPC has it, and one without audit costs
nothing.
"""

from collections.abc import Callable

from tidemark.model.authorization import (
    Operation,
    Requester,
    Resource,
    ResourceType,
)
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy, Decision, Reason
from tidemark.protocol.audit import AuditTrail


class AuditedAuthorizer(AclAuthorizer):
    """Authorizer that notes what it decides. A decision that must be written down and finds no room
    is a denial.
    """

    def __init__(self, policy: AclPolicy, trail: AuditTrail, wall_ms: Callable[[], int]) -> None:
        super().__init__(policy)
        self._trail = trail
        self._wall_ms = wall_ms

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Return True if the requester may do ``operation`` to ``resource``."""
        decision = self.decide(requester, operation, resource)
        noted = self._trail.decided(requester, operation, resource, decision, self._wall_ms())
        return noted and decision.allowed

    def sees(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Return True if a list has a resource. It is not noted."""
        return self.decide(requester, operation, resource).allowed

    def authorize_any(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True if the operation is allowed on at least one resource of a type. It is noted
        as an operation on the resource ``*``.
        """
        allowed = super().authorize_any(requester, operation, resource_type)
        decision = Decision(Reason.ALLOW if allowed else Reason.NO_MATCH)
        resource = Resource(resource_type, "*")
        noted = self._trail.decided(requester, operation, resource, decision, self._wall_ms())
        return noted and allowed
