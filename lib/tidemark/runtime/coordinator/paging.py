"""Pages of a listing: the rows of all shards of one coordinator, in the order of shards and names.

A listing grows with the cluster, and a message of gRPC may not. A shard that moves between two
pages may be missing, as one that moves between the calls to two coordinators.
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, Protocol

from tidemark_wire.v1 import common_pb2

PAGE_BYTES: Final = 16 * 1024 * 1024
"""Size of a page, unless a single row is larger. A quarter of a message's limit."""
SORTED_NAMES: Final = 8_192
"""Names that are sorted in one turn of the loop."""
_ROW_OVERHEAD_BYTES: Final = 8
"""Tag and length of a row, at most."""


class Asks(Protocol):
    """Request for a listing."""

    takes_pages: bool
    after: common_pb2.ListingCursor


class Row(NamedTuple):
    """One row, with the name by which rows of a shard are in order."""

    name: str
    wire: Any
    """Message of the row."""


class Page(NamedTuple):
    """One page. ``next`` is None for the last one."""

    rows: Sequence[Any]
    next: common_pb2.ListingCursor | None


async def page_of(
    request: Asks, shards: Iterable[int], read: Callable[[int, str], AsyncGenerator[Row, None]]
) -> Page:
    """Return the page that a request wants. ``read`` yields the rows of a shard, by name in order,
    and may leave out those up to the name that it is given; ``shards`` are in order too. Everything
    is one page for a caller that takes no pages.
    """
    begins, size_bytes = (request.after.shard, request.after.name), 0
    rows: list[Any] = []
    last = begins
    for shard in shards:
        if shard < begins[0]:
            continue
        after = begins[1] if shard == begins[0] else ""
        async with aclosing(read(shard, after)) as found:
            async for name, wire in found:
                if (shard, name) <= begins:
                    continue
                size_bytes += wire.ByteSize() + _ROW_OVERHEAD_BYTES
                if rows and request.takes_pages and size_bytes > PAGE_BYTES:
                    return Page(rows, common_pb2.ListingCursor(shard=last[0], name=last[1]))
                rows.append(wire)
                last = shard, name
    return Page(rows, None)


async def in_order(names: Sequence[str]) -> Iterator[str]:
    """Return names in order, sorted in parts: others take turns meanwhile."""
    parts = []
    for begins in range(0, len(names), SORTED_NAMES):
        parts.append(sorted(names[begins : begins + SORTED_NAMES]))
        await asyncio.sleep(0)
    return heapq.merge(*parts)
