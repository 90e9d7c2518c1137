"""Access control lists in words, and the question "may X do Y?", for the command and for REST.

The question is answered as brokers decide it, from the ACLs and from the policy of one broker.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from tidemark.model.acls import ALL_OPERATIONS, AclBinding, Acls, PatternType
from tidemark.model.authorization import CLUSTER, Operation, Requester, Resource, ResourceType
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy, Reason

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
OPEN_WITHOUT_ACL: Final = "allow.everyone.if.no.acl.found"
POLICY_SETTINGS: Final = (AUTHORIZER, SUPER_USERS, OPEN_WITHOUT_ACL)
"""Settings of a broker that make its policy."""

RESOURCE_WORDS: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
}
ALL_WORD: Final = "all"


class Rule(StrEnum):
    """Kind of rule that makes a decision."""

    ACL = "ACL"
    SUPER_USER = "SUPER_USER"
    DEFAULT = "DEFAULT"
    """No ACL applies: what holds then."""
    NO_AUTHORIZER = "NO_AUTHORIZER"
    """Nothing is enforced."""


_RULES: Final = {
    Reason.PROCESS: Rule.SUPER_USER,
    Reason.SUPER_USER: Rule.SUPER_USER,
    Reason.DENY: Rule.ACL,
    Reason.ALLOW: Rule.ACL,
}


class Verdict(NamedTuple):
    """Answer to one question. ``binding`` is the ACL that decided it, if one did."""

    allowed: bool
    rule: Rule
    because: str
    binding: AclBinding | None = None


def policy_of(settings: Mapping[str, str | None]) -> AclPolicy | None:
    """Return the policy that a broker's settings make; None if it enforces no ACLs."""
    if not settings.get(AUTHORIZER):
        return None
    users = (one.strip() for one in (settings.get(SUPER_USERS) or "").split(";"))
    is_open = (settings.get(OPEN_WITHOUT_ACL) or "").lower() == "true"
    return AclPolicy(frozenset(one for one in users if one), is_open)


def verdict(
    policy: AclPolicy | None,
    acls: Acls,
    requester: Requester,
    operation: Operation,
    resource: Resource,
) -> Verdict:
    """Return whether a requester may do ``operation`` to ``resource``, and by which rule."""
    if policy is None:
        words = f"brokers enforce no ACLs: {AUTHORIZER} is not set"
        return Verdict(allowed=True, rule=Rule.NO_AUTHORIZER, because=words)
    # An index of all ACLs would cost much for one question.
    covering = {
        pattern: entries
        for pattern, entries in acls.items()
        if pattern.resource_type is resource.resource_type and pattern.covers(resource.name)
    }
    decision = AclAuthorizer(policy, covering).decide(requester, operation, resource)
    rule = _RULES.get(decision.reason, Rule.DEFAULT)
    return Verdict(decision.allowed, rule, decision.reason.value, decision.binding)


def operation_word(number: int) -> str:
    """Return the name of an operation, as ``alter-configs`` or ``all``."""
    if number == ALL_OPERATIONS:
        return ALL_WORD
    try:
        return Operation(number).name.lower().replace("_", "-")
    except ValueError:
        return str(number)


def resource_words(resource: Resource) -> str:
    """Return a resource, as ``topic orders``."""
    kind = RESOURCE_WORDS[resource.resource_type]
    return kind if resource == CLUSTER else f"{kind} {resource.name}"


def binding_words(binding: AclBinding) -> str:
    """Return a binding in one line."""
    pattern, entry = binding
    star = "*" if pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        f"{entry.permission.name.lower()} {operation_word(entry.operation)} on"
        f" {RESOURCE_WORDS[pattern.resource_type]} {pattern.name}{star}"
        f" to {entry.principal} from {entry.host}"
    )
