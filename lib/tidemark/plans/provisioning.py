"""Topics, users and ACLs that are to be there, and the changes that a cluster needs for it.

Nothing is removed but ACLs that an earlier run has made. A second run on the same cluster has no
changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidemark.client.admin.types import AlterConfig, NewTopic
from tidemark.model.acls import (
    ALL_OPERATIONS,
    WILDCARD,
    AclBinding,
    AclEntry,
    PatternType,
    Permission,
    ResourcePattern,
)
from tidemark.model.authorization import (
    CLUSTER,
    SUPPORTED_OPERATIONS,
    Operation,
    ResourceType,
)
from tidemark.plans.access import ALL_WORD, binding_words, operation_word
from tidemark.plans.errors import PlanError

_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
_DEFAULT: Final = -1
Entry = Mapping[str, Any]


class FoundTopic(NamedTuple):
    """A topic as it is. ``configs`` has the settings of its own, without defaults."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Topics, users and ACLs that are to be there. A number of -1 is the cluster's default."""

    topics: tuple[NewTopic, ...] = ()
    users: tuple[str, ...] = ()
    acls: frozenset[AclBinding] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """Topics, users and ACLs that are there. ``users``: those that log in with their passwords.
    ``made``: ACLs that earlier runs have made.
    """

    topics: Mapping[str, FoundTopic]
    users: frozenset[str]
    acls: frozenset[AclBinding]
    made: frozenset[AclBinding]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to a cluster, in the order in which they are made."""

    topics: tuple[NewTopic, ...]
    partitions: Mapping[str, int]
    """Total numbers by topic."""
    configs: Mapping[str, tuple[AlterConfig, ...]]
    users: tuple[str, ...]
    """Users that get their passwords."""
    new_acls: frozenset[AclBinding]
    old_acls: frozenset[AclBinding]
    """ACLs of earlier runs that are no longer wanted."""
    made: frozenset[AclBinding]
    """All ACLs that are kept up by these runs, once the changes are made."""

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each change."""
        for topic in self.topics:
            yield f"topic {topic.name} made"
        for name, count in self.partitions.items():
            yield f"topic {name} has {count} partitions"
        for name, entries in self.configs.items():
            for one in entries:
                yield f"topic {name} has {one.name}={one.value}"
        for name in self.users:
            yield f"user {name} has the password of the Secret"
        for binding in sorted(self.new_acls):
            yield f"ACL added: {binding_words(binding)}"
        for binding in sorted(self.old_acls):
            yield f"ACL removed: {binding_words(binding)}"


def plan(wanted: Wanted, found: Found) -> Changes:
    """Return the changes. Raises PlanError for what no change could bring about."""
    new, partitions, configs = [], {}, {}
    for topic in wanted.topics:
        there = found.topics.get(topic.name)
        if there is None:
            new.append(topic)
            continue
        _check_topic(topic, there)
        if topic.partitions > there.partitions:
            partitions[topic.name] = topic.partitions
        changed = tuple(
            AlterConfig(name, value)
            for name, value in sorted(topic.configs.items())
            if there.configs.get(name) != value
        )
        if changed:
            configs[topic.name] = changed
    missing = wanted.acls - found.acls
    return Changes(
        tuple(new),
        partitions,
        configs,
        tuple(name for name in wanted.users if name not in found.users),
        missing,
        (found.made & found.acls) - wanted.acls,
        (found.made & wanted.acls) | missing,
    )


def _check_topic(topic: NewTopic, there: FoundTopic) -> None:
    if _DEFAULT != topic.partitions < there.partitions:
        raise PlanError(
            f"topic {topic.name} has {there.partitions} partitions, and {topic.partitions} are"
            " wanted: partitions are never removed",
            where=f"topics: {topic.name}",
            remedy=f"partitions: {there.partitions}, or a new topic",
        )
    if topic.replication_factor not in (_DEFAULT, there.replication_factor):
        raise PlanError(
            f"topic {topic.name} has {there.replication_factor} replicas, and"
            f" {topic.replication_factor} are wanted: replicas are moved by a reassignment",
            where=f"topics: {topic.name}",
            remedy=f"tidemark cluster reassign, or replicationFactor: {there.replication_factor}",
        )


# -- reading


def read_wanted(document: Mapping[str, Any]) -> Wanted:
    """Return what a document wants: ``topics``, ``users`` with ``acls``, ``acls`` with a
    ``principal``. Raises PlanError.
    """
    topics = tuple(_topic(one) for one in document.get("topics") or ())
    users = tuple(str(_required(one, "name", "users")) for one in document.get("users") or ())
    _check_unique("topics", [topic.name for topic in topics])
    _check_unique("users", users)
    acls: list[AclBinding] = []
    for user in document.get("users") or ():
        for entry in user.get("acls") or ():
            acls += _bindings(entry, f"User:{user['name']}")
    for entry in document.get("acls") or ():
        acls += _bindings(entry, str(_required(entry, "principal", "acls")))
    return Wanted(topics, users, frozenset(acls))


def _topic(entry: Entry) -> NewTopic:
    return NewTopic(
        str(_required(entry, "name", "topics")),
        int(entry.get("partitions", _DEFAULT)),
        int(entry.get("replicationFactor", _DEFAULT)),
        {name: str(value) for name, value in (entry.get("config") or {}).items()},
    )


def _bindings(entry: Entry, principal: str) -> Iterator[AclBinding]:
    """Yield a binding for each operation of an entry."""
    where = f"acls of {principal}"
    named = [word for word in _RESOURCES if entry.get(word)]
    if len(named) != 1:
        raise PlanError(f"{where}: name one of {', '.join(_RESOURCES)}", where=where)
    kind = _RESOURCES[named[0]]
    name = CLUSTER.name if kind is ResourceType.CLUSTER else str(entry[named[0]])
    is_prefix = bool(entry.get("prefixed")) and kind is not ResourceType.CLUSTER
    pattern = ResourcePattern(
        kind, name, PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    )
    permission = Permission.DENY if entry.get("permission") == "deny" else Permission.ALLOW
    for word in _required(entry, "operations", where):
        number = _operation(str(word), kind, where)
        host = str(entry.get("host") or WILDCARD)
        yield AclBinding(pattern, AclEntry(principal, host, number, permission))


def _operation(word: str, kind: ResourceType, where: str) -> int:
    if word == ALL_WORD:
        return ALL_OPERATIONS
    names: dict[str, Operation] = {operation_word(one): one for one in SUPPORTED_OPERATIONS[kind]}
    if word not in names:
        raise PlanError(
            f"{where}: a {kind.name.lower()} has no operation {word!r}",
            where=where,
            remedy=", ".join([*names, ALL_WORD]),
        )
    return int(names[word])


def _required(entry: Entry, key: str, where: str) -> Any:
    if not entry.get(key):
        raise PlanError(f"{where}: {key} is missing", where=where)
    return entry[key]


def _check_unique(where: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanError(f"{where}: {twice[0]} is there twice", where=where)


# -- what earlier runs have made


def to_words(acls: frozenset[AclBinding]) -> list[list[Any]]:
    """Return ACLs as lists that JSON has, in order."""
    return [
        [
            int(pattern.resource_type),
            pattern.name,
            int(pattern.pattern_type),
            entry.principal,
            entry.host,
            int(entry.operation),
            int(entry.permission),
        ]
        for pattern, entry in sorted(acls)
    ]


def from_words(words: Sequence[Sequence[Any]]) -> frozenset[AclBinding]:
    """Return the ACLs of ``to_words``."""
    return frozenset(
        AclBinding(
            ResourcePattern(ResourceType(kind), name, PatternType(pattern)),
            AclEntry(principal, host, operation, Permission(permission)),
        )
        for kind, name, pattern, principal, host, operation, permission in words
    )
