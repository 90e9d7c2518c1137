"""Audit: which decisions, logins and changes are written down, and how many times each happened.

What is the same within an interval becomes one entry with a count: a client that fetches a thousand
times a second costs one entry an interval. Entries are bounded by number, and names by length. What
finds no room is counted; it is for the caller to go on, or to refuse what cannot be written down.
Payloads and secrets never come here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tidemark.model.acls import AclBinding
from tidemark.model.authorization import PROCESS, Operation, Requester, Resource
from tidemark.model.errors import ErrorCode
from tidemark.protocol.acl_authorizer import Decision

NAME_CHARS_MAX: Final = 256
"""Characters of a name that are kept: clients choose some names before anything checks them."""

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
LOGIN_SUCCEEDED: Final = "login.succeeded"
LOGIN_FAILED: Final = "login.failed"
CHANGED: Final = "changed"
OUTCOMES: Final = (ALLOWED, DENIED, LOGIN_SUCCEEDED, LOGIN_FAILED, CHANGED)
"""Kinds of entries, as an exclusion names them."""
_CUT: Final = "…"


class Access(NamedTuple):
    """Decision of the authorizer; ``rule`` is the ACL that made it, '' without one."""

    requester: Requester
    operation: str
    resource_type: str
    resource: str
    allowed: bool
    reason: str
    rule: str


class Login(NamedTuple):
    """Login of a client, or a failed one; ``user`` is then what the client claims to be."""

    user: str
    host: str
    listener: str
    mechanism: str
    succeeded: bool
    reason: str = ""


class Changes(NamedTuple):
    """Request that changes the cluster, by its API, and the result for one resource."""

    requester: Requester
    api: str
    resource_type: str
    resource: str
    error: ErrorCode


Subject = Access | Login | Changes
NoteLogin = Callable[[Login], bool]
"""Notes a login; returns False if it must not happen."""


def no_note(login: Login) -> bool:
    """Note nothing: without audit."""
    del login
    return True


class Entry:
    """Something that happened ``count`` times; times are wall time in ms."""

    __slots__ = ("count", "first_ms", "last_ms", "subject")

    def __init__(self, subject: Subject, now_ms: int) -> None:
        self.subject = subject
        self.first_ms = self.last_ms = now_ms
        self.count = 1

    def again(self, now_ms: int) -> None:
        """Count it once more."""
        self.count += 1
        self.last_ms = now_ms


class AuditRules(NamedTuple):
    """Exclusions: what is not written down. Resources are types and names; ``*`` ends a prefix.
    Operations are excluded where they are allowed: a denial is of interest.
    """

    principals: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()
    resources: tuple[tuple[str, str], ...] = ()
    outcomes: frozenset[str] = frozenset()

    def excludes(self, subject: Subject) -> bool:
        """True if an entry is not of interest."""
        if isinstance(subject, Login):
            outcome = LOGIN_SUCCEEDED if subject.succeeded else LOGIN_FAILED
            return outcome in self.outcomes or f"User:{subject.user}" in self.principals
        if isinstance(subject, Access):
            outcome = ALLOWED if subject.allowed else DENIED
            if subject.allowed and subject.operation in self.operations:
                return True
        else:
            outcome = CHANGED
        return (
            outcome in self.outcomes
            or subject.requester.principal in self.principals
            or self._covers(subject.resource_type, subject.resource)
        )

    def _covers(self, resource_type: str, name: str) -> bool:
        return any(
            kind == resource_type
            and (name.startswith(own[:-1]) if own.endswith("*") else name == own)
            for kind, own in self.resources
        )


class AuditTrail:
    """Entries of one process since they were last taken."""

    def __init__(self, rules: AuditRules, *, entries_max: int, refuses: bool) -> None:
        """``refuses``: what finds no room must not happen, instead of being counted only."""
        self._rules = rules
        self._entries_max = entries_max
        self._refuses = refuses
        self._entries: dict[object, Entry] = {}
        self._excluded: set[object] = set()
        self.dropped = 0
        """Events that found no room."""
        self.noted = 0
        """Events that are in an entry."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def may_go_on(self) -> bool:
        """False if there is no room, and what cannot be written down must not happen."""
        return not self._refuses or len(self._entries) < self._entries_max

    def decided(
        self,
        requester: Requester,
        operation: Operation,
        resource: Resource,
        decision: Decision,
        now_ms: int,
    ) -> bool:
        """Note a decision about a client; returns False if it must not happen. Processes of the
        cluster do this all the time, and are not clients.
        """
        if requester.principal == PROCESS:
            return True
        if len(resource.name) > NAME_CHARS_MAX:
            resource = resource._replace(name=short(resource.name))
        key = (requester, operation, resource, decision.allowed)
        entry = self._entries.get(key)
        if entry is not None:
            entry.again(now_ms)
            self.noted += 1
            return True
        if key in self._excluded:
            return True
        return self._add(key, access(requester, operation, resource, decision), now_ms)

    def note(self, subject: Login | Changes, now_ms: int) -> bool:
        """Note a login or a change; returns False if it must not happen."""
        subject = _shortened(subject)
        entry = self._entries.get(subject)
        if entry is not None:
            entry.again(now_ms)
            self.noted += 1
            return True
        return self._add(subject, subject, now_ms)

    def _add(self, key: object, subject: Subject, now_ms: int) -> bool:
        if self._rules.excludes(subject):
            if len(self._excluded) >= self._entries_max:
                self._excluded.clear()
            self._excluded.add(key)
            return True
        if len(self._entries) >= self._entries_max:
            self.dropped += 1
            return not self._refuses
        self._entries[key] = Entry(subject, now_ms)
        self.noted += 1
        return True

    def take(self) -> list[Entry]:
        """Return the entries so far, oldest first, and begin again."""
        taken, self._entries = list(self._entries.values()), {}
        return taken


def access(
    requester: Requester, operation: Operation, resource: Resource, decision: Decision
) -> Access:
    """Return a decision as it is written down."""
    return Access(
        Requester(short(requester.principal), requester.host),
        kafka_name(operation.name),
        kafka_name(resource.resource_type.name),
        short(resource.name),
        decision.allowed,
        decision.reason.value,
        "" if decision.binding is None else rule_text(decision.binding),
    )


def rule_text(binding: AclBinding) -> str:
    """Return an ACL in words."""
    pattern, entry = binding
    kind = kafka_name(pattern.resource_type.name)
    operation = _OPERATIONS.get(entry.operation, "All")
    return (
        f"{entry.permission.name.lower()} {operation} on {kind} {pattern.pattern_type.name.lower()}"
        f" {short(pattern.name)} to {short(entry.principal)} from {entry.host}"
    )


def kafka_name(name: str) -> str:
    """Return Kafka's name of a constant, as ``DescribeConfigs``."""
    return "".join(word.capitalize() for word in name.split("_"))


_OPERATIONS: Final[Mapping[int, str]] = {int(one): kafka_name(one.name) for one in Operation}
OPERATION_NAMES: Final = frozenset(_OPERATIONS.values())
"""Names of operations, as an exclusion has them."""


def short(name: str) -> str:
    """Return a name, cut if it is too long."""
    return name if len(name) <= NAME_CHARS_MAX else name[:NAME_CHARS_MAX] + _CUT


def _shortened(subject: Login | Changes) -> Login | Changes:
    if isinstance(subject, Login):
        return subject._replace(user=short(subject.user), reason=short(subject.reason))
    requester = subject.requester._replace(principal=short(subject.requester.principal))
    return subject._replace(requester=requester, resource=short(subject.resource))


def read_resources(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return excluded resources from ``Topic:name`` and ``Group:prefix*``. Raises ValueError."""
    found = []
    for text in texts:
        kind, _, name = text.partition(":")
        if kind not in RESOURCE_TYPES or not name:
            raise ValueError(f"{text!r} is no resource: use Topic:name, or Topic:prefix*")
        found.append((kind, name))
    return tuple(found)


RESOURCE_TYPES: Final = (
    "Topic", "Group", "Cluster", "TransactionalId", "User", "ClientQuota", "Acl", "Broker",
    "ClientMetrics",
)  # fmt: skip
