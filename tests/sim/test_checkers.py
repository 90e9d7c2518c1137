"""Each checker rejects a history that breaks its promise, and accepts one that keeps it."""

import pytest
from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import ProducedBatch, ProducerEntry
from tidemark.codec.record_batch import BatchHeader, read_header
from tidemark.codec.records import build_batch
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition

from sim.checkers import (
    BrokenError,
    Fetched,
    ReaderMemory,
    Recovered,
    check_acknowledged,
    check_bounds,
    check_damage_told,
    check_epochs,
    check_fetched,
    check_last_values,
    check_producers,
    check_recovered_after_kill,
    check_recovered_after_power_loss,
    check_repeated,
    check_sequences,
    check_watermark,
)
from sim.history import Bounds, PlainLog


def batch(first: int, records: int = 2, *, key: bytes | None = None, **fields: int) -> bytes:
    return build_batch(
        [(1_000, key, b"v%d" % (first + at), ()) for at in range(records)],
        base_offset=first,
        leader_epoch=fields.get("leader_epoch", 0),
        producer_id=fields.get("producer_id", -1),
        producer_epoch=fields.get("producer_epoch", 0),
        base_sequence=fields.get("sequence", -1),
    )


def history(*batches: bytes, is_promised: bool = False) -> PlainLog:
    log = PlainLog(TopicPartition("orders", 0), TopicId(bytes(16)))
    for one in batches:
        log.appended(one, is_promised=is_promised)
    return log


def recovered(log_end: int, *, log_start: int = 0) -> Recovered:
    return Recovered(log_start, log_end, 0, (), LeaderEpochs())


@pytest.mark.parametrize(
    "bounds",
    [Bounds(3, 2, 4, 5, 0), Bounds(0, 3, 2, 5, 0), Bounds(0, 2, 6, 5, 0), Bounds(0, 2, 2, 5, 6)],
)
def test_bounds_out_of_order(bounds: Bounds) -> None:
    check_bounds(Bounds(0, 2, 2, 5, 5))
    with pytest.raises(BrokenError):
        check_bounds(bounds)


def test_a_watermark_that_goes_back() -> None:
    log = history(batch(0))
    check_watermark(log, 2)
    with pytest.raises(BrokenError, match="never goes back"):
        check_watermark(log, 1)


def test_a_fetch_of_what_was_written() -> None:
    log = history(batch(0), batch(2))
    assert check_fetched(log, Fetched(1, 4, batch(0) + batch(2))) == 4


@pytest.mark.parametrize(
    ("fetched", "invariant"),
    [
        (Fetched(0, 4, batch(0)[:-1]), "whole batches"),
        (Fetched(0, 4, batch(0)[:-1] + b"?"), "torn or damaged"),
        (Fetched(0, 3, batch(0) + batch(2)), "beyond the high watermark"),
        (Fetched(0, 4, batch(2)), "no record is skipped"),
        (Fetched(2, 4, batch(0)), "offsets rise"),
        (Fetched(0, 4, batch(0, key=b"k")), "same bytes"),
        (Fetched(4, 9, batch(4)), "invented"),
    ],
)
def test_a_fetch_of_anything_else(fetched: Fetched, invariant: str) -> None:
    with pytest.raises(BrokenError, match=invariant):
        check_fetched(history(batch(0), batch(2)), fetched)


def test_compaction_that_changes_a_record() -> None:
    log = history(batch(0), batch(2))
    log.cleaned_end = 2
    with pytest.raises(BrokenError, match="only removes"):
        check_fetched(log, Fetched(0, 4, batch(0, key=b"k")))


def test_a_reader_that_sees_other_bytes() -> None:
    memory = ReaderMemory()
    memory.saw(read_header(batch(0)))
    memory.saw(read_header(batch(0)))
    with pytest.raises(BrokenError, match="no other bytes"):
        memory.saw(read_header(batch(0, key=b"k")))
    memory.forget_from(0)
    memory.saw(read_header(batch(0, key=b"k")))


def sequenced(*steps: tuple[int, int]) -> list[BatchHeader]:
    return [
        read_header(batch(0, producer_id=1, producer_epoch=epoch, sequence=sequence))
        for epoch, sequence in steps
    ]


def test_sequences_in_order() -> None:
    check_sequences(sequenced((0, 8), (0, 10), (1, 0), (1, 2)))
    check_sequences(sequenced((0, 2**31 - 1), (0, 1)))


@pytest.mark.parametrize(
    "steps", [((0, 0), (0, 0)), ((0, 0), (0, 4)), ((1, 0), (0, 2)), ((0, 0), (1, 2))]
)
def test_sequences_repeated_skipped_or_of_an_old_epoch(steps: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(BrokenError, match="each once"):
        check_sequences(sequenced(*steps))


def test_an_answer_that_names_another_place() -> None:
    log = history(batch(0, producer_id=1, sequence=0))
    check_acknowledged(log, base_offset=0, asked=(1, 0, 0))
    with pytest.raises(BrokenError, match="names the batch"):
        check_acknowledged(log, base_offset=0, asked=(1, 0, 2))
    with pytest.raises(BrokenError, match="is in the log"):
        check_acknowledged(log, base_offset=1, asked=(1, 0, 0))


def test_a_repetition_of_what_was_never_appended() -> None:
    log = history(batch(0, producer_id=1, sequence=2))
    check_repeated(log, asked=(1, 0, 2))
    with pytest.raises(BrokenError, match="was appended"):
        check_repeated(log, asked=(1, 0, 0))


@pytest.mark.parametrize("found", [recovered(2), recovered(6), recovered(4, log_start=1)])
def test_a_kill_that_loses_or_adds(found: Recovered) -> None:
    log = history(batch(0), batch(2))
    check_recovered_after_kill(log, recovered(4))
    with pytest.raises(BrokenError):
        check_recovered_after_kill(log, found)


def test_power_loss_that_takes_what_was_synced() -> None:
    log = history(batch(0), batch(2))
    log.synced_end = 2
    check_recovered_after_power_loss(log, recovered(2))
    with pytest.raises(BrokenError, match="synced records"):
        check_recovered_after_power_loss(log, recovered(0))


def test_power_loss_that_takes_what_flush_group_acknowledged() -> None:
    log = history(batch(0), batch(2), is_promised=True)
    log.batches[0].is_acknowledged = True
    check_recovered_after_power_loss(log, recovered(2))
    with pytest.raises(BrokenError, match="flush=group"):
        check_recovered_after_power_loss(log, recovered(0))


def test_power_loss_that_leaves_half_a_batch_or_more_than_there_was() -> None:
    for log_end in (3, 6):
        with pytest.raises(BrokenError, match="cuts at a batch"):
            check_recovered_after_power_loss(history(batch(0), batch(2)), recovered(log_end))


def entry(*sequences: int, epoch: int = 0) -> ProducerEntry:
    batches = tuple(ProducedBatch(one, one + 1, one, one + 1, 1_000) for one in sequences)
    return ProducerEntry(1, epoch, -1, -1, 0, batches)


def test_a_producer_table_that_is_what_the_log_says() -> None:
    log = history(*(batch(one, producer_id=1, sequence=one) for one in (0, 2, 4)))
    check_producers(log, [entry(0, 2, 4)], 0)
    check_producers(log, [entry(4)], 4)


@pytest.mark.parametrize("entries", [[], [entry(0, 2)], [entry(2, 4)], [entry(0, 2, 4, epoch=1)]])
def test_a_producer_table_that_lacks_something(entries: list[ProducerEntry]) -> None:
    log = history(*(batch(one, producer_id=1, sequence=one) for one in (0, 2, 4)))
    with pytest.raises(BrokenError):
        check_producers(log, entries, 0)


def test_a_producer_whose_last_epoch_was_lost_is_fenced_all_the_same() -> None:
    def raised() -> PlainLog:
        later = batch(2, producer_id=1, producer_epoch=1, sequence=0)
        return history(batch(0, producer_id=1, sequence=0), later)

    log = raised()
    log.cut_to(2)
    check_producers(log, [entry(0)], 0)
    check_producers(log, [entry(epoch=1)], 0)
    for found in (entry(epoch=2), entry(2, epoch=1)):  # never raised; a batch that is gone
        with pytest.raises(BrokenError, match="epochs are kept"):
            check_producers(log, [found], 0)
    for found in (entry(0), entry(epoch=2)):
        with pytest.raises(BrokenError, match="epochs are kept"):
            check_producers(raised(), [found], 0)


def test_a_producer_all_of_whose_batches_were_lost_may_be_known() -> None:
    def ended() -> PlainLog:
        return history(batch(0), batch(2, producer_id=1, producer_epoch=1, sequence=0))

    log = ended()
    log.cut_to(2)
    check_producers(log, [], 0)
    check_producers(log, [entry(epoch=1)], 0)
    for found in (entry(epoch=2), entry(2, epoch=1)):  # an epoch that never was; a lost batch
        with pytest.raises(BrokenError, match="invented"):
            check_producers(log, [found], 0)
    with pytest.raises(BrokenError):
        check_producers(ended(), [entry(epoch=1)], 0)


def test_a_producer_that_never_was() -> None:
    with pytest.raises(BrokenError, match="invented"):
        check_producers(history(batch(0)), [entry(0)], 0)


def test_a_lost_leader_epoch() -> None:
    log = history(batch(0), batch(2, leader_epoch=3))
    check_epochs(log, LeaderEpochs([(0, 0), (3, 2)]), 0)
    with pytest.raises(BrokenError, match="leader epochs"):
        check_epochs(log, LeaderEpochs([(0, 0)]), 0)


def test_compaction_that_takes_the_last_value() -> None:
    log = history(batch(0, key=b"k"))
    records = log.batches[0].records
    check_last_values(log, records[1:], 0)
    with pytest.raises(BrokenError, match="last value"):
        check_last_values(log, records[:1], 0)


def test_damage_that_is_not_told_or_is_cut() -> None:
    check_damage_told(["CRC"], {"a.log": 9}, {"a.log": 9})
    with pytest.raises(BrokenError, match="is told"):
        check_damage_told([], {"a.log": 9}, {"a.log": 9})
    with pytest.raises(BrokenError, match="never cut"):
        check_damage_told(["CRC"], {"a.log": 9}, {"a.log": 8})
