import asyncio
from collections.abc import AsyncGenerator, Iterable

import pytest
from tidemark.runtime.coordinator import paging
from tidemark.runtime.coordinator.paging import Row, page_of
from tidemark_wire.v1 import txn_pb2 as pb

SHARDS = {0: ["a", "c"], 3: ["b", "d", "e"], 4: [], 7: ["a2"]}


async def read(shard: int, after: str) -> AsyncGenerator[Row, None]:
    assert not after or after in SHARDS[shard]
    for name in SHARDS[shard]:
        yield Row(name, pb.TransactionState(transactional_id=name))


def pages(request: pb.ListTransactionsRequest, shards: Iterable[int] = SHARDS) -> list[list[str]]:
    async def follow() -> list[list[str]]:
        found = []
        while True:
            page = await page_of(request, shards, read)
            found.append([one.transactional_id for one in page.rows])
            if page.next is None:
                return found
            request.after.CopyFrom(page.next)

    return asyncio.run(follow())


@pytest.mark.parametrize("size", [1, 12, 25, 40, 1_000])
def test_pages_have_every_row_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_BYTES", size)
    found = pages(pb.ListTransactionsRequest(takes_pages=True))
    assert [one for page in found for one in page] == ["a", "c", "b", "d", "e", "a2"]
    assert all(found)
    assert (len(found) == 1) == (size == 1_000)


def test_a_caller_of_an_earlier_release_gets_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_BYTES", 1)
    assert pages(pb.ListTransactionsRequest()) == [["a", "c", "b", "d", "e", "a2"]]


def test_no_shards_are_an_empty_page() -> None:
    assert pages(pb.ListTransactionsRequest(takes_pages=True), ()) == [[]]
