"""Each rule for transactions rejects a history made by hand, and accepts a similar one that keeps
the rule.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tidemark.codec.control_record import OwnerRecord
from tidemark.codec.txn_records import TransactionRecord
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.transaction import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)

from sim.checkers import BrokenError
from sim.cluster.state_log import Ending, Markers, StateLog
from sim.cluster.txn_history import Committed, Consumed, Txn, TxnHistory, copied_once

GROUP = "copiers"
ALL = {
    "orders": [(0, b"a"), (2, b"c")],
    "prices": [(0, b"b"), (2, b"d")],
    "copies": [(0, b"a@1"), (2, b"c@2")],
}
OFFSETS = {(GROUP, "orders"): 3}


def history() -> TxnHistory:
    """One: a and b, committed. Two: c and d, asked to commit. Three: e, aborted. Four: f, open.
    Two workers' transactions copied a and c. r1 has read orders up to 2.
    """
    made = TxnHistory()
    for name, values in (("one", b"ab"), ("two", b"cd"), ("three", b"e"), ("four", b"f")):
        txn = made.begins(name)
        for number, value in enumerate(values):
            made.writes(txn, ("orders", "prices")[number], bytes([value]))
    made.asks(made.txns["one"])
    made.told(made.txns["one"], committed=True)
    made.asks(made.txns["two"])
    made.told(made.txns["three"], committed=False)
    copies(made, "copy one", b"a@1", 0, 1)
    copies(made, "copy two", b"c@2", 1, 3)
    made.polls("r1", "orders", 0, [(0, b"a")], 2)
    return made


def copies(made: TxnHistory, name: str, value: bytes, first: int, end: int) -> Txn:
    """A worker's transaction, committed."""
    txn = made.begins(name)
    made.writes(txn, "copies", value)
    made.consumes(txn, Consumed(GROUP, "orders", first, end))
    made.asks(txn)
    made.told(txn, committed=True)
    return txn


def without(*values: bytes) -> Committed:
    """Return all readable records at the end, except for some values."""
    rows = {
        topic: [row for row in of_topic if row[1] not in values] for topic, of_topic in ALL.items()
    }
    return Committed(rows, OFFSETS)


def beside(topic: str, *rows: tuple[int, bytes]) -> Committed:
    """Return all readable records at the end, and some more."""
    return Committed({**ALL, topic: [*ALL[topic], *rows]}, OFFSETS)


def write_lost(one: TxnHistory) -> None:
    one.ends(without(b"b"))


def value_twice(one: TxnHistory) -> None:
    one.ends(beside("prices", (5, b"b")))


def aborted_value_read(one: TxnHistory) -> None:
    one.polls("r2", "orders", 4, [(4, b"e")], 5)


def aborted_value_there(one: TxnHistory) -> None:
    one.ends(beside("orders", (4, b"e")))


def half_of_a_transaction(one: TxnHistory) -> None:
    one.ends(without(b"d"))


def open_transaction_read(one: TxnHistory) -> None:
    one.polls("r2", "orders", 6, [(6, b"f")], 7)


def committed_unasked(one: TxnHistory) -> None:
    one.told(one.txns["four"], committed=True)


def poll_skips_a_value(one: TxnHistory) -> None:
    one.polls("r1", "orders", 2, [], 3)
    one.ends(without())


def poll_goes_back(one: TxnHistory) -> None:
    one.polls("r1", "orders", 1, [], 2)


def poll_out_of_order(one: TxnHistory) -> None:
    one.polls("r1", "orders", 2, [(2, b"c"), (0, b"a")], 3)


def poll_does_not_pass_what_it_got(one: TxnHistory) -> None:
    one.polls("r1", "orders", 2, [(2, b"c")], 2)


def what_was_read_is_gone(one: TxnHistory) -> None:
    one.polls("r2", "prices", 0, [(0, b"b"), (2, b"d")], 3)
    one.ends(without(b"c", b"d"))


def stable_end_goes_back(one: TxnHistory) -> None:
    one.tells_end("r1", 2, 3)
    one.tells_end("r1", 2, 2)


def offsets_without_data(one: TxnHistory) -> None:
    one.ends(Committed(ALL, {(GROUP, "orders"): 4}))


def data_without_offsets(one: TxnHistory) -> None:
    one.ends(Committed(ALL, {(GROUP, "orders"): 1}))


def consumed_twice(one: TxnHistory) -> None:
    copies(one, "copy three", b"c@3", 1, 3)
    one.ends(beside("copies", (4, b"c@3")))


def consumed_with_a_gap(one: TxnHistory) -> None:
    copies(one, "copy three", b"g@3", 5, 6)
    one.ends(Committed({**ALL, "copies": [*ALL["copies"], (4, b"g@3")]}, {(GROUP, "orders"): 6}))


REJECTED: dict[Callable[[TxnHistory], None], str] = {
    write_lost: "no lost write",
    value_twice: "no duplicate",
    aborted_value_read: "nobody reads the aborted",
    aborted_value_there: "nothing aborted is there",
    half_of_a_transaction: "no torn transaction",
    open_transaction_read: "nobody reads from an open transaction",
    committed_unasked: "nobody commits what was not asked for",
    poll_skips_a_value: "polls skip nothing",
    poll_goes_back: "polls follow one another",
    poll_out_of_order: "polls are monotonic",
    poll_does_not_pass_what_it_got: "polls are monotonic",
    what_was_read_is_gone: "what was read stays",
    stable_end_goes_back: "the last stable offset never goes back for a reader",
    offsets_without_data: "no offsets are committed without their data",
    data_without_offsets: "no data is committed without its offsets",
    consumed_twice: "each offset is consumed once",
    consumed_with_a_gap: "no offsets are committed without their data",
}


@pytest.mark.parametrize("bad", REJECTED, ids=lambda one: one.__name__)
def test_a_history_that_may_not_be_is_rejected(bad: Callable[[TxnHistory], None]) -> None:
    with pytest.raises(BrokenError) as found:
        bad(history())
    assert found.value.invariant == REJECTED[bad]


def test_a_history_that_may_be_is_taken() -> None:
    one = history()
    one.polls("r1", "orders", 2, [(2, b"c")], 7)
    one.tells_end("r1", 7, 7)
    one.gives_up(one.txns["four"])
    one.ends(without())


def test_what_was_asked_and_never_told_may_also_be_aborted() -> None:
    one = TxnHistory()
    txn = one.begins("one")
    one.writes(txn, "orders", b"a")
    one.asks(txn)
    one.gives_up(txn)
    one.ends(Committed({"orders": []}, {}))


SOURCE = [(0, b"a"), (1, b"b"), (3, b"c")]
COPIED = [(0, b"a@1"), (1, b"b@1")]


@pytest.mark.parametrize(
    ("copied", "rule"),
    [
        (COPIED[:1], "every input is in the output"),
        ([*COPIED, (2, b"a@2")], "no input is in the output twice"),
        (COPIED[::-1], "the output has the inputs in their order"),
    ],
)
def test_a_copy_that_is_not_exactly_once_is_rejected(
    copied: list[tuple[int, bytes]], rule: str
) -> None:
    with pytest.raises(BrokenError) as found:
        copied_once(SOURCE, copied, 2)
    assert found.value.invariant == rule


def test_a_copy_of_all_that_is_consumed_is_taken() -> None:
    assert copied_once(SOURCE, COPIED, 2) == 0


def test_what_is_copied_at_least_once_is_counted() -> None:
    assert copied_once(SOURCE, [*COPIED, (2, b"a@2")], 2, at_least_once=True) == 1


# -- the log of the coordinator's state

FIRST = TransactionRecord("w", 7, 3, 1_000, EMPTY, 100)


def record(state: object, updated_at: int, producer_epoch: int = 3) -> TransactionRecord:
    """Return a later record of the same id."""
    return TransactionRecord("w", 7, producer_epoch, 1_000, state, updated_at)  # type: ignore[arg-type]


def log() -> StateLog:
    """Owned in epoch 5, with an open transaction."""
    made = StateLog("__transaction_state-0")
    made.takes_over(OwnerRecord(5))
    made.takes(FIRST)
    made.takes(record(ONGOING, 101))
    return made


def older_owner(one: StateLog) -> None:
    one.takes_over(OwnerRecord(4))


def impossible_state(one: StateLog) -> None:
    one.takes(record(COMPLETE_COMMIT, 102))


def record_of_a_stale_owner(one: StateLog) -> None:
    one.takes(record(PREPARE_COMMIT, 103))
    one.takes(record(COMPLETE_COMMIT, 102))


def epoch_falls(one: StateLog) -> None:
    one.takes(record(PREPARE_ABORT, 102, producer_epoch=2))


def owner_holds_something_else(one: StateLog) -> None:
    one.remembers("t1", {"w": FIRST})


def owner_holds_nothing(one: StateLog) -> None:
    one.remembers("t1", {})


WRONG: dict[Callable[[StateLog], None], str] = {
    older_owner: "owner epochs never fall",
    impossible_state: "states follow the table",
    record_of_a_stale_owner: "records are in order",
    epoch_falls: "producer epochs never fall",
    owner_holds_something_else: "owners hold what the log says",
    owner_holds_nothing: "owners hold what the log says",
}


@pytest.mark.parametrize("bad", WRONG, ids=lambda one: one.__name__)
def test_a_log_that_no_owners_wrote_is_rejected(bad: Callable[[StateLog], None]) -> None:
    with pytest.raises(BrokenError) as found:
        bad(log())
    assert found.value.invariant == WRONG[bad]


def test_a_log_that_owners_wrote_is_taken() -> None:
    one = log()
    one.takes(record(PREPARE_COMMIT, 102, producer_epoch=4))
    one.takes_over(OwnerRecord(6))
    done = record(COMPLETE_COMMIT, 103, producer_epoch=4)
    one.takes(done)
    one.remembers("t2", {"w": done})
    assert one.prepared == {Ending(7, 4, commits=True)}


AT = TopicPartition("orders", 0)


def writing(producer_epoch: int, *partitions: TopicPartition) -> TransactionRecord:
    """An open transaction."""
    return replace(record(ONGOING, 102, producer_epoch), partitions=frozenset(partitions or (AT,)))


@pytest.mark.parametrize(
    "known",
    [
        None,
        record(COMPLETE_COMMIT, 102, producer_epoch=4),
        writing(4, TopicPartition("prices", 0)),
        writing(5),
    ],
)
def test_records_that_the_coordinator_does_not_know_of_are_rejected(
    known: TransactionRecord | None,
) -> None:
    with pytest.raises(BrokenError) as found:
        Markers().records(AT, 7, 4, known)
    assert found.value.invariant == "a partition takes only what the coordinator knows of"


def test_records_of_a_transaction_that_is_being_ended_are_taken() -> None:
    ending = replace(writing(5), state=PREPARE_COMMIT)
    Markers().records(AT, 7, 4, ending)


def test_a_marker_before_its_decision_is_rejected() -> None:
    with pytest.raises(BrokenError) as found:
        Markers().written(Ending(7, 4, commits=True), {Ending(7, 4, commits=False)})
    assert found.value.invariant == "nothing is marked before it is decided"


def test_a_marker_that_ends_the_next_transaction_is_rejected() -> None:
    markers = Markers()
    markers.records(AT, 7, 4, writing(4))
    with pytest.raises(BrokenError) as found:
        markers.committed("orders-0", Ending(7, 4, commits=True))
    assert found.value.invariant == "a marker ends the transaction that it was decided for"


def test_two_outcomes_of_one_transaction_are_rejected() -> None:
    markers = Markers()
    markers.committed("orders-0", Ending(7, 4, commits=True))
    with pytest.raises(BrokenError) as found:
        markers.committed("prices-0", Ending(7, 4, commits=False))
    assert found.value.invariant == "a transaction has one outcome"
