"""Updates of the authorizer with the ACLs of each new image."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from tidemark.model.acls import AclEntry, ResourcePattern
from tidemark.model.authorization import Authorizer
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.protocol.acl_authorizer import AclAuthorizer
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.subscribers import AUTHORIZER

PATTERNS_IN_STEP: Final = 2_000
"""Patterns that are compared in one step, in a millisecond or two."""

_NO_ENTRIES: Final[frozenset[AclEntry]] = frozenset()


def follow_acls(metadata: MetadataCache, authorizer: Authorizer) -> None:
    """Subscribe the authorizer to changes of ACLs. It has them before the image is shown, so that
    a change that was answered holds.
    """

    def act(change: MetadataChange) -> Iterator[None]:
        if isinstance(authorizer, AclAuthorizer):
            yield from _update(authorizer, change)

    metadata.subscribe(AUTHORIZER, Kind.ACLS, act)


def _update(authorizer: AclAuthorizer, change: MetadataChange) -> Iterator[None]:
    before, after = change.before.acls, change.image.acls
    changed: dict[ResourcePattern, frozenset[AclEntry]] = {}
    patterns = iter({**before, **after})
    while step := list(islice(patterns, PATTERNS_IN_STEP)):
        for pattern in step:
            entries = after.get(pattern, _NO_ENTRIES)
            if before.get(pattern, _NO_ENTRIES) != entries:
                changed[pattern] = entries
        yield
    authorizer.replace(changed)
