"""Each rule for a sink's batches rejects a history made by hand, and accepts a similar one that
keeps the rule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from tidemark.client.transactions.sink_batches import BatchOutcome
from tidemark.codec.sink_state import SinkState
from tidemark.codec.txn_records import HandleRecord, WriterRecord
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.transaction import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT

from sim.checkers import BrokenError
from sim.cluster.sink_history import Batch, SinkHistory
from sim.cluster.state_log import Ending, Markers, StateLog
from sim.cluster.txn_history import Row, TxnHistory

FIRST, SECOND, OF_NEXT = Batch(1, 0), Batch(1, 1), Batch(2, 0)
ROWS: Mapping[str, Sequence[Row]] = {
    "orders": [(0, b"a"), (3, b"d"), (6, b"f")],
    "prices": [(0, b"b"), (2, b"e")],
}


def outcome(note: str, *, first: bool = False, same: bool = True) -> BatchOutcome:
    """Return the outcome of a committed batch."""
    return BatchOutcome(committed=True, first=first, note=note, same_writers=same)


def let_in(made: SinkHistory, batch: Batch, name: str, *written: tuple[str, bytes]) -> None:
    """A task that writes this."""
    txn = made.lets_in(made.asks_in(batch), name)
    for topic, value in written:
        made.txns.writes(txn, topic, value)


def asks(made: SinkHistory, batch: Batch, note: str, *winners: str) -> None:
    made.asks(batch, note, [made.txns.txns[name] for name in winners])


def history() -> SinkHistory:
    """The first batch: a and b by two tasks, committed by n1; c by another attempt, asked for by
    n2. The second: d and e, asked for by n3, of which nobody heard. The next query's first: f.
    """
    made = SinkHistory(TxnHistory())
    let_in(made, FIRST, "one", ("orders", b"a"))
    let_in(made, FIRST, "two", ("prices", b"b"))
    let_in(made, FIRST, "lost", ("orders", b"c"))
    asks(made, FIRST, "n1", "one", "two")
    asks(made, FIRST, "n2", "lost")
    made.tells(FIRST, "n1", outcome("n1", first=True))
    let_in(made, SECOND, "three", ("orders", b"d"), ("prices", b"e"))
    asks(made, SECOND, "n3", "three")
    let_in(made, OF_NEXT, "four", ("orders", b"f"))
    asks(made, OF_NEXT, "n4", "four")
    return made


def without(*values: bytes) -> dict[str, list[Row]]:
    return {topic: [row for row in rows if row[1] not in values] for topic, rows in ROWS.items()}


def let_into_the_committed(one: SinkHistory) -> None:
    let_in(one, FIRST, "late")


def let_into_a_stale_batch(one: SinkHistory) -> None:
    one.tells(SECOND, "n3", outcome("n3", first=True))
    let_in(one, FIRST, "late")


def retired_query_let_in(one: SinkHistory) -> None:
    let_in(one, Batch(1, 2), "late")


def commit_that_is_none(one: SinkHistory) -> None:
    one.tells(SECOND, "n3", BatchOutcome(committed=False, first=False, note=""))


def two_first_commits(one: SinkHistory) -> None:
    one.tells(FIRST, "n1", outcome("n1", first=True))


def first_commit_of_another(one: SinkHistory) -> None:
    one.won.clear()
    one.first.clear()
    one.tells(FIRST, "n2", outcome("n1", first=True, same=False))


def two_commits(one: SinkHistory) -> None:
    one.tells(FIRST, "n2", outcome("n2"))


def other_writers_taken_for_the_same(one: SinkHistory) -> None:
    one.tells(FIRST, "n2", outcome("n1"))


def same_writers_taken_for_others(one: SinkHistory) -> None:
    one.tells(FIRST, "n1", outcome("n1", same=False))


def commit_that_nobody_asked_for(one: SinkHistory) -> None:
    one.done(SECOND, "n7")


def described_by_an_old_query(one: SinkHistory) -> None:
    one.describes(one.asks_in(SECOND), 1, 1)


def described_by_an_old_batch(one: SinkHistory) -> None:
    one.newest_query = 1
    one.describes(one.asks_in(SECOND), 1, -1)


def loser_is_there(one: SinkHistory) -> None:
    one.ends({**ROWS, "orders": [(0, b"a"), (1, b"c"), *ROWS["orders"][1:]]})


def half_a_batch(one: SinkHistory) -> None:
    one.ends(without(b"b"))


def batch_that_was_told_is_gone(one: SinkHistory) -> None:
    one.ends(without(b"a", b"b"))


def batches_out_of_order(one: SinkHistory) -> None:
    one.ends({**ROWS, "orders": [(0, b"d"), (3, b"a"), (6, b"f")]})


def old_query_after_the_next(one: SinkHistory) -> None:
    one.ends({**ROWS, "orders": [(0, b"a"), (3, b"f"), (6, b"d")]})


def loser_is_read(one: SinkHistory) -> None:
    one.txns.polls("r1", "orders", 0, [(0, b"a"), (1, b"c")], 2)


ONE_COMMIT = "a batch is visible once, by the winners of one commit"
REJECTED: dict[Callable[[SinkHistory], None], str] = {
    let_into_the_committed: "no batch is let in that is committed, or older",
    let_into_a_stale_batch: "no batch is let in that is committed, or older",
    retired_query_let_in: "no query comes back that another took over from",
    commit_that_is_none: "a commit ends in one",
    two_first_commits: "a batch has one first commit",
    first_commit_of_another: "a first commit is one's own",
    two_commits: "a batch has one commit",
    other_writers_taken_for_the_same: "a commit knows its winners again",
    same_writers_taken_for_others: "a commit knows its winners again",
    commit_that_nobody_asked_for: "nobody commits what was not asked for",
    described_by_an_old_query: "a sink is described as it is",
    described_by_an_old_batch: "a sink is described as it is",
    loser_is_there: ONE_COMMIT,
    half_a_batch: ONE_COMMIT,
    batch_that_was_told_is_gone: "a batch is what its commit named",
    batches_out_of_order: "batches are visible in order",
    old_query_after_the_next: "batches are visible in order",
    loser_is_read: "nobody reads the aborted",
}


@pytest.mark.parametrize("bad", REJECTED, ids=lambda one: one.__name__)
def test_a_history_that_may_not_be_is_rejected(bad: Callable[[SinkHistory], None]) -> None:
    with pytest.raises(BrokenError) as found:
        bad(history())
    assert found.value.invariant == REJECTED[bad]


def test_a_history_that_may_be_is_taken() -> None:
    one = history()
    one.tells(FIRST, "n1", outcome("n1"))
    one.tells(FIRST, "n2", outcome("n1", same=False))
    one.describes(one.asks_in(SECOND), 2, -1)
    one.ends(ROWS)


def test_a_batch_of_which_nobody_heard_may_also_be_aborted() -> None:
    history().ends(without(b"d", b"e"))


# -- the log of the coordinator's state

AT = TopicPartition("orders", 0)
OPENED = HandleRecord("sink", 1, 100, 700, ONGOING, 100, 100, sink=SinkState("q1", 0))
SLOT = WriterRecord("sink", 0, 1, "t0", 7, 3, partitions=frozenset({AT}))
DECIDED = replace(
    OPENED, state=PREPARE_COMMIT, updated_at=101, winners=(0,), sink=SinkState("q1", 0, 0)
)
DONE = replace(DECIDED, state=COMPLETE_COMMIT, updated_at=102)
NEXT = replace(OPENED, number=2, updated_at=103, sink=SinkState("q1", 1, 0))


def log() -> StateLog:
    """Its first batch is open, with two writers."""
    made = StateLog("__transaction_state-0")
    for one in (OPENED, SLOT, replace(SLOT, slot=1, writer="t1", producer_id=8)):
        made.takes(one)
    return made


def taking(*records: HandleRecord | WriterRecord) -> Callable[[StateLog], None]:
    def take(one: StateLog) -> None:
        for record in records:
            one.takes(record)

    return take


COMES_BACK = replace(NEXT, sink=SinkState("q2", 0, retired=("q1",)))
WRONG: dict[str, tuple[Callable[[StateLog], None], str]] = {
    "decided twice": (taking(DECIDED, replace(DECIDED, updated_at=102)), "states follow the table"),
    "decided earlier": (taking(replace(DECIDED, updated_at=99)), "records are in order"),
    "one is left out": (
        taking(DECIDED, DONE, replace(NEXT, number=3)),
        "transactions of an id follow one another",
    ),
    "an epoch falls": (taking(replace(SLOT, producer_epoch=2)), "producer epochs never fall"),
    "handed out twice": (
        taking(replace(SLOT, writer="t2")),
        "a hand-out has an epoch of its own",
    ),
    "a commit is forgotten": (
        taking(DECIDED, DONE, replace(NEXT, sink=SinkState("q1", 1))),
        "a sink's committed batches rise",
    ),
    "a sink is forgotten": (taking(DECIDED, DONE, replace(NEXT, sink=None)), "a sink stays one"),
    "taken over in silence": (
        taking(DECIDED, DONE, replace(NEXT, sink=SinkState("q2", 0))),
        "who was taken over from is retired",
    ),
    "a query comes back": (
        taking(
            DECIDED,
            DONE,
            COMES_BACK,
            replace(DECIDED, number=2, updated_at=104, sink=SinkState("q1", 0)),
        ),
        "no query comes back",
    ),
    "an owner has another": (
        lambda one: one.remembers_multi_writer("t1", {"sink": (OPENED, {0: SLOT})}),
        "owners hold what the log says",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_log_that_no_owners_wrote_is_rejected(what: str) -> None:
    bad, rule = WRONG[what]
    with pytest.raises(BrokenError) as found:
        bad(log())
    assert found.value.invariant == rule


def test_a_log_that_owners_wrote_is_taken() -> None:
    one = log()
    taking(DECIDED, DONE, COMES_BACK)(one)
    assert one.prepared == {Ending(7, 4, commits=True), Ending(8, 4, commits=False)}


@pytest.mark.parametrize(
    ("later", "producer_epoch"),
    [((), 4), ((replace(SLOT, partitions=frozenset()),), 3), ((DECIDED, DONE), 3)],
    ids=["never handed out", "not added", "after its end"],
)
def test_records_that_the_coordinator_does_not_know_of_are_rejected(
    later: tuple[HandleRecord | WriterRecord, ...], producer_epoch: int
) -> None:
    one = log()
    taking(*later)(one)
    with pytest.raises(BrokenError) as found:
        Markers().records(AT, 7, producer_epoch, one.knows(7))
    assert found.value.invariant == "a partition takes only what the coordinator knows of"


@pytest.mark.parametrize("later", [(), (DECIDED,)])
def test_records_of_a_batch_that_is_open_or_being_ended_are_taken(
    later: tuple[HandleRecord, ...],
) -> None:
    one = log()
    taking(*later)(one)
    Markers().records(AT, 7, 3, one.knows(7))
