"""AccessRules: what callers of REST and the console may do."""

from collections.abc import Callable, Mapping

from tidemark.model.acls import Acls
from tidemark.model.authorization import Operation, Requester, Resource
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy, Decision, Reason

from controller.core.roles import Role, grants


class AccessRules:
    """The decisions of Kafka's listeners, by the same ACLs and super users, and the roles."""

    def __init__(
        self, policy: AclPolicy | None, roles: Mapping[str, Role], acls: Callable[[], Acls]
    ) -> None:
        """``policy`` None: everybody may do everything. ``acls``: those of the latest metadata."""
        self._authorizer = None if policy is None else AclAuthorizer(policy)
        self._roles = roles
        self._acls = acls
        self._seen: Acls = {}

    @property
    def enforced(self) -> bool:
        """True if somebody may be refused something."""
        return self._authorizer is not None

    def allows(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Return True if the requester may do ``operation`` to ``resource``."""
        return self.decide(requester, operation, resource).allowed

    def decide(self, requester: Requester, operation: Operation, resource: Resource) -> Decision:
        """Return the decision for an operation on one resource."""
        if self._authorizer is None:
            return Decision(Reason.NO_AUTHORIZER)
        self._follow(self._authorizer)
        decision = self._authorizer.decide(requester, operation, resource)
        if decision.allowed or decision.reason is Reason.DENY:
            return decision
        role = self._roles.get(requester.principal)
        if role is not None and grants(role, operation, resource.resource_type):
            return Decision(Reason.ROLE)
        return decision

    def _follow(self, authorizer: AclAuthorizer) -> None:
        """Take the entries of patterns that have changed."""
        now, before = self._acls(), self._seen
        if now is before:
            return
        patterns = now.keys() | before.keys()
        changed = {one for one in patterns if now.get(one) is not before.get(one)}
        authorizer.replace({one: now.get(one, frozenset()) for one in changed})
        self._seen = now
