"""AclAuthorizer: decisions by access control lists, as Kafka's StandardAuthorizer makes them.

A deny has precedence over an allow. READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS
implies DESCRIBE_CONFIGS, for entries that allow; an entry that denies covers its own operation
only. A resource with no entry at all is allowed to everybody if
``allow.everyone.if.no.acl.found`` is set; without it, and for a resource that has entries of which
none applies, the answer is no.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from ipaddress import IPv6Address
from typing import Final, NamedTuple

from tidemark.model.acls import (
    ALL_OPERATIONS,
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclEntry,
    Acls,
    PatternType,
    Permission,
    ResourcePattern,
)
from tidemark.model.authorization import (
    PROCESS,
    SUPPORTED_OPERATIONS,
    Authorizer,
    Operation,
    Requester,
    Resource,
    ResourceType,
)

CACHED_MAX: Final = 20_000
"""Decisions that are kept; beyond it all are forgotten."""

_IMPLIED_BY: Final[dict[Operation, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class Reason(Enum):
    """Rule that made a decision."""

    PROCESS = "process of the cluster"
    SUPER_USER = "super user"
    DENY = "denied by an ACL"
    ALLOW = "allowed by an ACL"
    NO_ACL = "the resource has no ACL"
    NO_ACL_ALLOWED = "the resource has no ACL, and allow.everyone.if.no.acl.found is set"
    NO_MATCH = "no ACL of the resource applies"
    ROLE = "allowed by a role"
    NO_AUTHORIZER = "there is no authorizer"


_ALLOWING: Final = frozenset(
    {
        Reason.PROCESS,
        Reason.SUPER_USER,
        Reason.ALLOW,
        Reason.NO_ACL_ALLOWED,
        Reason.ROLE,
        Reason.NO_AUTHORIZER,
    }
)


class Decision(NamedTuple):
    """Answer to one question, and the binding that decided it, if one did."""

    reason: Reason
    binding: AclBinding | None = None

    @property
    def allowed(self) -> bool:
        """True if the operation is allowed."""
        return self.reason in _ALLOWING


class AclPolicy(NamedTuple):
    """Configuration of the authorizer (super.users, allow.everyone.if.no.acl.found)."""

    super_users: frozenset[str] = frozenset()
    allow_without_acl: bool = False


class _Rules:
    """Entries of one pattern, by principal, each with its host in one form."""

    __slots__ = ("by_principal", "pattern")

    def __init__(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        self.pattern = pattern
        by_principal: dict[str, list[tuple[str, AclEntry]]] = {}
        for entry in sorted(entries):
            by_principal.setdefault(entry.principal, []).append((_address(entry.host), entry))
        self.by_principal = {name: tuple(some) for name, some in by_principal.items()}

    def for_requester(self, principal: str, host: str) -> Iterator[AclEntry]:
        """Yield the entries of a principal, then those of every user, that are about a host in the
        form of ``_address``.
        """
        hosts = (WILDCARD, host)
        for one, entry in self.by_principal.get(principal, ()):
            if one in hosts:
                yield entry
        if principal != EVERY_USER and principal.startswith("User:"):
            for one, entry in self.by_principal.get(EVERY_USER, ()):
                if one in hosts:
                    yield entry


class _TypeIndex:
    """Patterns of one resource type. A lookup costs one step for each length of a prefix in use,
    whatever the number of patterns.
    """

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.lengths: dict[int, int] = {}
        """Number of prefixes by their length."""

    def replace(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Set the entries of a pattern; none removes it."""
        is_prefix = pattern.pattern_type is PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        was = patterns.pop(pattern.name, None)
        rules = _Rules(pattern, entries)
        if rules.by_principal:
            patterns[pattern.name] = rules
        if is_prefix:
            self._count(len(pattern.name), bool(rules.by_principal) - (was is not None))

    def _count(self, length: int, change: int) -> None:
        self.lengths[length] = self.lengths.get(length, 0) + change
        if not self.lengths[length]:
            del self.lengths[length]

    def covering(self, name: str) -> Iterator[_Rules]:
        """Yield the rules of all patterns that cover a resource."""
        for literal in {name, WILDCARD}:
            if (rules := self.literal.get(literal)) is not None:
                yield rules
        for length in self.lengths:
            if length <= len(name) and (rules := self.prefixed.get(name[:length])) is not None:
                yield rules


class AclAuthorizer(Authorizer):
    """Decides by the entries of a cluster; ``replace`` follows their changes."""

    has_rules = True

    def __init__(self, policy: AclPolicy, acls: Acls | None = None) -> None:
        self._policy = policy
        self._types = {kind: _TypeIndex() for kind in ResourceType}
        self._decided: dict[tuple[Requester, Operation, Resource], Decision] = {}
        self.replace(acls or {})

    def replace(self, changed: Acls) -> None:
        """Replace the entries of these patterns; empty entries remove a pattern."""
        self._decided.clear()
        for pattern, entries in changed.items():
            self._types[pattern.resource_type].replace(pattern, entries)

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Return True if the requester may do ``operation`` to ``resource``."""
        assert operation in SUPPORTED_OPERATIONS[resource.resource_type], (operation, resource)
        return self.decide(requester, operation, resource).allowed

    def decide(self, requester: Requester, operation: Operation, resource: Resource) -> Decision:
        """Return the decision for an operation on one resource."""
        question = (requester, operation, resource)
        decision = self._decided.get(question)
        if decision is None:
            decision = self._decide(requester, operation, resource)
            if len(self._decided) >= CACHED_MAX:
                self._decided.clear()
            self._decided[question] = decision
        return decision

    def _decide(self, requester: Requester, operation: Operation, resource: Resource) -> Decision:
        if requester.principal == PROCESS:
            return Decision(Reason.PROCESS)
        if requester.principal in self._policy.super_users:
            return Decision(Reason.SUPER_USER)
        allowing: AclBinding | None = None
        has_acls, host = False, _address(requester.host)
        for rules in self._types[resource.resource_type].covering(resource.name):
            has_acls = True
            for entry in rules.for_requester(requester.principal, host):
                if not _covers(entry, operation):
                    continue
                if entry.permission is Permission.DENY:
                    return Decision(Reason.DENY, AclBinding(rules.pattern, entry))
                allowing = allowing or AclBinding(rules.pattern, entry)
        if allowing is not None:
            return Decision(Reason.ALLOW, allowing)
        if has_acls:
            return Decision(Reason.NO_MATCH)
        return Decision(Reason.NO_ACL_ALLOWED if self._policy.allow_without_acl else Reason.NO_ACL)

    def authorize_any(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True if the operation is allowed on at least one resource of a type, which need
        not exist (authorizeByResourceType of KIP-679).
        """
        if requester.principal == PROCESS or requester.principal in self._policy.super_users:
            return True
        patterns, host = self._types[resource_type], _address(requester.host)
        denied = _Patterns()
        allowed = _Patterns()
        for rules in (*patterns.literal.values(), *patterns.prefixed.values()):
            for entry in rules.for_requester(requester.principal, host):
                if _covers(entry, operation):
                    chosen = denied if entry.permission is Permission.DENY else allowed
                    chosen.add(rules.pattern)
        if WILDCARD in denied.literal:
            return False
        if self._policy.allow_without_acl and WILDCARD not in patterns.literal:
            return True
        return any(not denied.dominates(one) for one in allowed.patterns)


class _Patterns:
    """Patterns of the entries that allow, or of those that deny."""

    __slots__ = ("literal", "patterns", "prefixes")

    def __init__(self) -> None:
        self.patterns: list[ResourcePattern] = []
        self.literal: set[str] = set()
        self.prefixes: set[str] = set()

    def add(self, pattern: ResourcePattern) -> None:
        """Add one pattern."""
        self.patterns.append(pattern)
        is_prefix = pattern.pattern_type is PatternType.PREFIXED
        (self.prefixes if is_prefix else self.literal).add(pattern.name)

    def dominates(self, pattern: ResourcePattern) -> bool:
        """Return True if these patterns cover every resource that ``pattern`` covers."""
        if pattern.pattern_type is PatternType.LITERAL:
            if pattern.name == WILDCARD:
                return False
            if pattern.name in self.literal:
                return True
        return any(
            pattern.name[:length] in self.prefixes for length in range(1, len(pattern.name) + 1)
        )


def _address(host: str) -> str:
    """Return an address of IPv6, which has several forms, in one of them: Java prints another than
    sockets. Anything else stays as it is.
    """
    if ":" not in host:
        return host
    try:
        found = IPv6Address(host)
    except ValueError:
        return host
    return str(found.ipv4_mapped or found)


def _covers(entry: AclEntry, operation: Operation) -> bool:
    """Return True if an entry is about an operation."""
    if entry.operation in (operation, ALL_OPERATIONS):
        return True
    implied = _IMPLIED_BY.get(operation, frozenset())
    return entry.permission is Permission.ALLOW and entry.operation in implied
