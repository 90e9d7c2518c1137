"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31): access control lists (KIP-140, KIP-290).

They are described from this broker's metadata. Changes are relayed to the controller, each binding
and each filter alone. Without an authorizer the answer is SECURITY_DISABLED, as Kafka's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    RawBinding,
    ResourcePattern,
    bindings_of,
    check_filter,
)
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.acl_mapping import (
    AclResult,
    read_created_acls,
    read_deleted_acls,
    write_create_acls,
    write_delete_acls,
)
from broker.shell.cluster.controller_relay import (
    ALTER_CONFIGS_TIMEOUT_MS,
    ControllerRelay,
    caller_of,
)
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

_LATE: Final = "the change is made, but this broker's metadata did not show it within the timeout"


async def describe(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Describe the ACLs that a filter selects, by pattern."""
    try:
        _check(facts, context, Operation.DESCRIBE)
        wanted = _filter(request)
        check_filter(wanted)
    except TidemarkError as refused:
        return {
            "error_code": int(refused.code),
            "error_message": refused.message,
            "resources": [],
        }
    found: dict[ResourcePattern, list[AclEntry]] = {}
    for one in bindings_of(metadata.image.acls):
        if wanted.selects(one):
            found.setdefault(one.pattern, []).append(one.entry)
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "resources": [_resource(pattern, entries) for pattern, entries in found.items()],
    }


async def create(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Create ACLs; one that exists already succeeds."""
    bindings = [
        RawBinding(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in request.creations
    ]
    try:
        _check(facts, context, Operation.ALTER)
        message = write_create_acls(
            caller_of(context), bindings, timeout_ms=ALTER_CONFIGS_TIMEOUT_MS
        )
        results = await _seen(relay.change("CreateAcls", message, read_created_acls))
    except TidemarkError as refused:
        results = [AclResult(refused.code, refused.message)] * len(bindings)
    return {"results": [_outcome(one) for one in results]}


async def delete(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Delete the ACLs that any of the filters selects."""
    filters = [_filter(one) for one in request.filters]
    try:
        _check(facts, context, Operation.ALTER)
        message = write_delete_acls(
            caller_of(context), filters, timeout_ms=ALTER_CONFIGS_TIMEOUT_MS
        )
        results = await _seen(relay.change("DeleteAcls", message, read_deleted_acls))
    except TidemarkError as refused:
        results = [AclResult(refused.code, refused.message)] * len(filters)
    return {
        "filter_results": [
            {**_outcome(one), "matching_acls": [_matching(binding) for binding in one.deleted]}
            for one in results
        ]
    }


def _check(facts: BrokerFacts, context: RequestContext, operation: Operation) -> None:
    """Raise TidemarkError for a caller that may not, and where no ACL is enforced."""
    if not facts.authorizer.authorize(context.requester, operation, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if not facts.authorizer.has_rules:
        raise TidemarkError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


async def _seen(change: Awaitable[tuple[Sequence[AclResult], bool]]) -> list[AclResult]:
    """Return the controller's results. Raises TidemarkError."""
    results, is_seen = await change
    late = AclResult(ErrorCode.REQUEST_TIMED_OUT, _LATE)
    return [one if is_seen or one.error_code is not ErrorCode.NONE else late for one in results]


def _filter(wire: Struct) -> AclFilter:
    return AclFilter(
        wire.resource_type_filter,
        wire.resource_name_filter,
        wire.pattern_type_filter,
        wire.principal_filter,
        wire.host_filter,
        wire.operation,
        wire.permission_type,
    )


def _resource(pattern: ResourcePattern, entries: Iterable[AclEntry]) -> dict[str, object]:
    return {
        "resource_type": int(pattern.resource_type),
        "resource_name": pattern.name,
        "pattern_type": int(pattern.pattern_type),
        "acls": [_entry(entry) for entry in entries],
    }


def _entry(entry: AclEntry) -> dict[str, object]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }


def _outcome(result: AclResult) -> dict[str, object]:
    return {"error_code": int(result.error_code), "error_message": result.error_message}


def _matching(binding: AclBinding) -> dict[str, object]:
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "resource_type": int(binding.pattern.resource_type),
        "resource_name": binding.pattern.name,
        "pattern_type": int(binding.pattern.pattern_type),
        **_entry(binding.entry),
    }
