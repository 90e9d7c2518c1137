"""Access control lists as the command line writes them."""

import difflib
from typing import Any, Final

from tidemark.cli.failure import CommandError
from tidemark.model.acls import ALL_OPERATIONS, AclBinding, PatternType
from tidemark.model.authorization import (
    CLUSTER,
    SUPPORTED_OPERATIONS,
    Operation,
    Resource,
    ResourceType,
)
from tidemark.plans.access import ALL_WORD, RESOURCE_WORDS, operation_word
from tidemark.runtime.exit_codes import ExitCode

Row = dict[str, Any]


def read_operation(text: str) -> int:
    """Return the number of an operation, as ``read``, ``alter-configs`` or ``all``. Raises
    CommandError.
    """
    names = {ALL_WORD: ALL_OPERATIONS} | {
        one.name.lower().replace("_", "-"): int(one) for one in Operation
    }
    plain = {name.replace("-", ""): number for name, number in names.items()}
    number = plain.get(text.lower().replace("-", "").replace("_", ""))
    if number is not None:
        return number
    near = difflib.get_close_matches(text.lower(), names, n=1)
    raise CommandError(
        f"there is no operation {text!r}",
        hint=f"did you mean {near[0]}?" if near else f"operations: {', '.join(names)}",
        code=ExitCode.USAGE,
    )


def one_operation(text: str, resource: Resource) -> Operation:
    """Return an operation that the resource has. Raises CommandError."""
    number, has = read_operation(text), SUPPORTED_OPERATIONS[resource.resource_type]
    if number in has:
        return Operation(number)
    raise CommandError(
        f"a {RESOURCE_WORDS[resource.resource_type]} has no operation {text!r} to check",
        hint=f"operations: {', '.join(map(operation_word, has))}",
        code=ExitCode.USAGE,
    )


def read_principal(text: str) -> str:
    """Return a principal; a bare name is a user's. Raises CommandError for an empty one."""
    if (not text.partition(":")[2] and ":" in text) or not text:
        raise CommandError(f"{text!r} is no principal", hint="User:NAME", code=ExitCode.USAGE)
    return text if ":" in text else f"User:{text}"


def read_resource(
    topic: str | None, group: str | None, transactional_id: str | None, *, cluster: bool
) -> Resource | None:
    """Return the resource that is named; None without a name. Raises CommandError for two."""
    named = [
        Resource(kind, name)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (ResourceType.TRANSACTIONAL_ID, transactional_id),
        )
        if name is not None
    ]
    if cluster:
        named.append(CLUSTER)
    if len(named) > 1:
        raise CommandError("more than one resource is named", hint=_ONE, code=ExitCode.USAGE)
    return named[0] if named else None


def required(resource: Resource | None) -> Resource:
    """Return the resource. Raises CommandError without one."""
    if resource is None:
        raise CommandError("no resource is named", hint=_ONE, code=ExitCode.USAGE)
    return resource


_ONE: Final = "name one of --topic, --group, --transactional-id, --cluster"


def binding_row(binding: AclBinding) -> Row:
    """Return the row of a binding."""
    pattern, entry = binding
    return {
        "resource": RESOURCE_WORDS[pattern.resource_type],
        "name": pattern.name,
        "pattern": "prefixed" if pattern.pattern_type is PatternType.PREFIXED else "literal",
        "principal": entry.principal,
        "host": entry.host,
        "permission": entry.permission.name.lower(),
        "operation": operation_word(entry.operation),
    }
