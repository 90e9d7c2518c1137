"""Access control lists: entries, patterns and filters, with Kafka's rules and numbers
(KIP-11, KIP-290).

An entry allows or denies a principal an operation. It belongs to a pattern, which selects the
resources of one type: the one of that name, all whose names have a prefix, or all.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tidemark.model.authorization import CLUSTER, Operation, ResourceType
from tidemark.model.errors import ErrorCode, TidemarkError

ANY: Final = 1
"""Number that in a filter selects every type, operation or permission."""
ALL_OPERATIONS: Final = 2
"""Operation of an entry that covers all operations."""
MATCH: Final = 2
"""Pattern type of a filter that selects every pattern that covers a resource of its name."""
WILDCARD: Final = "*"
"""Name of the literal pattern of all resources; host of an entry for all hosts."""
EVERY_USER: Final = "User:*"
"""Principal of an entry for all users."""
MAX_NAME: Final = 1_024
"""Longest principal, host or resource name, in characters."""
OPERATIONS: Final = frozenset({ALL_OPERATIONS, *Operation, 13, 14})
"""Operations of entries. 13 and 14 are about delegation tokens, which no broker serves."""


class PatternType(IntEnum):
    """Type of a pattern (org.apache.kafka.common.resource.PatternType)."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Effect of an entry (org.apache.kafka.common.acl.AclPermissionType)."""

    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """Pattern of resources of one type."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Return True if a resource of the pattern's type and of this name is selected."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (WILDCARD, name)


class AclEntry(NamedTuple):
    """Permission of a principal. ``operation`` is an Operation, or ALL_OPERATIONS."""

    principal: str
    host: str
    operation: int
    permission: Permission


class AclBinding(NamedTuple):
    """An entry and the pattern to which it belongs."""

    pattern: ResourcePattern
    entry: AclEntry


Acls = Mapping[ResourcePattern, frozenset[AclEntry]]
"""Entries by pattern; a pattern without entries is absent."""


class AclFilter(NamedTuple):
    """Selection of bindings (AclBindingFilter). None selects every name, principal or host; ANY
    every type, operation or permission.
    """

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @classmethod
    def only(cls, binding: AclBinding) -> "AclFilter":
        """Return the filter that selects this binding and no other."""
        pattern, entry = binding
        return cls(
            pattern.resource_type,
            pattern.name,
            pattern.pattern_type,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission,
        )

    def selects(self, binding: AclBinding) -> bool:
        """Return True if the binding is selected."""
        return self._selects_pattern(binding.pattern) and self._selects_entry(binding.entry)

    def _selects_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return (
            pattern.covers(self.name) if self.pattern_type == MATCH else pattern.name == self.name
        )

    def _selects_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )


def bindings_of(acls: Acls) -> Iterator[AclBinding]:
    """Yield all bindings, in the order of their patterns and entries."""
    for pattern in sorted(acls):
        for entry in sorted(acls[pattern]):
            yield AclBinding(pattern, entry)


def acls_after(acls: Acls, changed: Acls) -> Acls:
    """Return ``acls`` with the patterns of ``changed`` replaced; empty entries remove a pattern."""
    if not changed:
        return acls
    after = {**acls, **changed}
    return {pattern: entries for pattern, entries in after.items() if entries}


class RawBinding(NamedTuple):
    """Binding as a client sent it, with numbers that may be unknown."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


def read_binding(raw: RawBinding) -> AclBinding:
    """Return the binding of a client's numbers and names. Raises INVALID_REQUEST with the first
    thing that is wrong.
    """
    for problem in _problems(raw):
        raise TidemarkError(ErrorCode.INVALID_REQUEST, problem)
    pattern = ResourcePattern(
        ResourceType(raw.resource_type), raw.name, PatternType(raw.pattern_type)
    )
    entry = AclEntry(raw.principal, raw.host, raw.operation, Permission(raw.permission))
    return AclBinding(pattern, entry)


def check_filter(wanted: AclFilter) -> None:
    """Raise INVALID_REQUEST for a filter with a number that has no meaning."""
    numbers = (
        ("resource type", wanted.resource_type, {ANY, *_RESOURCE_TYPES, *_UNSERVED_TYPES}),
        ("pattern type", wanted.pattern_type, {ANY, MATCH, *_PATTERN_TYPES}),
        ("operation", wanted.operation, {ANY, *OPERATIONS}),
        ("permission type", wanted.permission, {ANY, *_PERMISSIONS}),
    )
    for what, number, known in numbers:
        if number not in known:
            raise TidemarkError(ErrorCode.INVALID_REQUEST, f"unknown {what} {number} in a filter")


_RESOURCE_TYPES: Final = frozenset(ResourceType)
_PATTERN_TYPES: Final = frozenset(PatternType)
_PERMISSIONS: Final = frozenset(Permission)
_UNSERVED_TYPES: Final = (6, 7)
"""Delegation tokens and users: a filter may name them, and selects nothing."""


def _problems(raw: RawBinding) -> Iterator[str]:
    """Yield what is wrong with a binding."""
    if raw.resource_type not in _RESOURCE_TYPES:
        yield f"resource type {raw.resource_type} cannot be used in an ACL"
    if raw.pattern_type not in _PATTERN_TYPES:
        yield f"pattern type {raw.pattern_type} must be LITERAL (3) or PREFIXED (4)"
    if raw.operation not in OPERATIONS:
        yield f"operation {raw.operation} cannot be used in an ACL"
    if raw.permission not in _PERMISSIONS:
        yield f"permission type {raw.permission} must be DENY (2) or ALLOW (3)"
    if not raw.name:
        yield "the resource name is empty"
    if raw.resource_type == CLUSTER.resource_type and raw.name != CLUSTER.name:
        yield f"the only valid name of a cluster resource is {CLUSTER.name}, not {raw.name!r}"
    principal_type, _, user = raw.principal.partition(":")
    if not (principal_type and user):
        yield f"principal {raw.principal!r} cannot be parsed: use the form User:name"
    if not raw.host:
        yield f"the host is empty: use {WILDCARD} for all hosts"
    if max(map(len, (raw.name, raw.principal, raw.host))) > MAX_NAME:
        yield f"a name, principal or host has more than {MAX_NAME} characters"
