"""Decisions on access control lists."""

import json
from typing import Final

from tidemark.model.acls import (
    AclBinding,
    AclEntry,
    ResourcePattern,
    bindings_of,
    check_filter,
    read_binding,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterDelta

from controller.core.cluster import Change, Cluster
from controller.core.effects import AclResult, AclResults
from controller.core.inputs import CreateAcls, DeleteAcls

PATTERNS_MAX: Final = 200_000
"""Number of patterns with an access control list. All of them are part of every snapshot."""
PATTERN_CHARS_MAX: Final = 128 * 1024
"""Longest access control list of a pattern, in characters of its znode, where those beyond ASCII
take six or twelve.
"""
ENTRY_CHARS: Final = 24
"""Characters of an entry without its principal and host."""

Draft = dict[ResourcePattern, frozenset[AclEntry]]


def decide_acls(
    cluster: Cluster, request: CreateAcls | DeleteAcls
) -> tuple[Change | None, AclResults]:
    """Return the change, if any, and the results to send once it is written. Each binding or filter
    succeeds or fails alone.
    """
    if isinstance(request, CreateAcls):
        return _create(cluster, request)
    return _delete(cluster, request)


def _create(cluster: Cluster, request: CreateAcls) -> tuple[Change | None, AclResults]:
    """Create bindings; one that exists succeeds and changes nothing."""
    draft: Draft = {}
    results: list[AclResult] = []
    for raw in request.bindings:
        try:
            _add(cluster, draft, read_binding(raw))
        except TidemarkError as error:
            results.append(AclResult(error.code, error.message))
        else:
            results.append(AclResult())
    return _change(draft), AclResults(tuple(results))


def _delete(cluster: Cluster, request: DeleteAcls) -> tuple[Change | None, AclResults]:
    """Delete bindings. One that several filters select is in the result of each."""
    draft: Draft = {}
    results: list[AclResult] = []
    for wanted in request.filters:
        try:
            check_filter(wanted)
        except TidemarkError as error:
            results.append(AclResult(error.code, error.message))
            continue
        found = tuple(one for one in bindings_of(cluster.image.acls) if wanted.selects(one))
        for one in found:
            draft[one.pattern] = _entries(cluster, draft, one.pattern) - {one.entry}
        results.append(AclResult(deleted=found))
    return _change(draft), AclResults(tuple(results))


def _change(draft: Draft) -> Change | None:
    return Change(ClusterDelta(acls_changed=draft)) if draft else None


def _entries(cluster: Cluster, draft: Draft, pattern: ResourcePattern) -> frozenset[AclEntry]:
    """Return the entries of a pattern as the draft has them."""
    return draft.get(pattern, cluster.image.acls.get(pattern, frozenset()))


def _add(cluster: Cluster, draft: Draft, binding: AclBinding) -> None:
    """Add a binding to the draft. Raises INVALID_REQUEST if that is too much."""
    pattern, entry = binding
    before = _entries(cluster, draft, pattern)
    if entry in before:
        return
    if not before and len(cluster.image.acls) + len(draft) >= PATTERNS_MAX:
        words = f"{PATTERNS_MAX} resource patterns have ACLs: delete some, or use prefixed patterns"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    entries = before | {entry}
    chars = sum(_chars(one.principal) + _chars(one.host) + ENTRY_CHARS for one in entries)
    if chars > PATTERN_CHARS_MAX:
        words = f"the ACLs of {pattern.name[:100]} have more than {PATTERN_CHARS_MAX} characters"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    draft[pattern] = entries


def _chars(text: str) -> int:
    """Return the characters that a text takes in JSON. Escapes of ASCII alone, at most six times
    as many, still fit in a znode.
    """
    return len(text) if text.isascii() else len(json.dumps(text)) - 2
