"""Records as a log has them: states of transactions, markers, batches that cannot be read."""

from controller.admin.records import Fetched, RecordState, Search, StoredRecord, read_fetched
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch


def batch(value: bytes, offset: int, *, producer: int = -1) -> bytes:
    return build_batch(
        [(1_000, b"key", value, (("source", b"shop"),))],
        base_offset=offset,
        producer_id=producer,
        attributes_extra=TRANSACTIONAL_BIT if producer >= 0 else 0,
    )


def marker(offset: int, *, producer: int, commits: bool) -> bytes:
    built = bytearray(
        build_marker(EndTxnMarker(commits, 0), producer_id=producer, producer_epoch=0, timestamp=1)
    )
    built[:8] = offset.to_bytes(8, "big")
    return bytes(built)


def states(content: bytes, *, stable: int, aborted: list[tuple[int, int]]) -> list[RecordState]:
    fetched = Fetched("orders", 0, memoryview(content), stable, aborted)
    return [record.state for record in read_fetched(fetched, 0, 100)[0]]


def test_every_record_has_the_state_of_its_transaction() -> None:
    content = b"".join(
        (
            batch(b"plain", 0),
            batch(b"lost", 1, producer=7),
            marker(2, producer=7, commits=False),
            batch(b"kept", 3, producer=7),
            marker(4, producer=7, commits=True),
            batch(b"open", 5, producer=8),
        )
    )
    found = states(content, stable=5, aborted=[(7, 1)])
    assert found == ["plain", "aborted", "marker", "committed", "marker", "open"]


def test_only_asked_offsets_of_whole_batches_are_returned() -> None:
    content = batch(b"a", 0) + batch(b"b", 1) + batch(b"c", 2)[:-3]
    rows, read_to = read_fetched(Fetched("orders", 0, memoryview(content), 9), 1, 9)
    assert [row.value for row in rows] == [b"b"]
    assert read_to == 2


def test_a_batch_that_cannot_be_read_says_why() -> None:
    broken = bytearray(batch(b"a", 0))
    broken[61] = 0x7F  # the record's length points behind the batch
    rows, read_to = read_fetched(Fetched("orders", 0, memoryview(bytes(broken)), 9), 0, 9)
    assert "cannot be read" in rows[0].note
    assert read_to == 1


def test_a_search_looks_at_keys_values_and_headers() -> None:
    record: StoredRecord = read_fetched(
        Fetched("orders", 0, memoryview(batch(b"Paid", 0)), 9), 0, 9
    )[0][0]
    assert Search("paid").matches(record)
    assert Search("source=SHOP", "headers").matches(record)
    assert not Search("paid", "key").matches(record)
