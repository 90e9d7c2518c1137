"""Each rule of the ledger rejects a history made by hand, and accepts a similar one that keeps the
rule.
"""

from collections.abc import Callable

import pytest

from sim.checkers import BrokenError
from sim.cluster.ledger import Ledger, State, Stored

ONE = Stored(0, 1, 0, 11, (b"a", b"b"))
TWO = Stored(2, 2, 0, 22, (b"c",))
OTHER = Stored(2, 2, 1, 33, (b"d",))


def ledger() -> Ledger:
    """Two batches committed in epoch 0 under leader 1."""
    made = Ledger("orders-0")
    made.stored(State(1, 0, 0, (1, 2, 3)))
    made.leads(1, 0)
    for value in (b"a", b"b", b"c", b"d"):
        made.sends(value, once=value != b"d")
    made.commits(1, 3, [ONE, TWO])
    return made


def two_leaders(one: Ledger) -> None:
    one.leads(2, 0)


def alone_after_an_election(one: Ledger) -> None:
    one.stored(State(2, 1, 1, (2, 3)))
    one.claims_alone(1, 0)


def partition_epoch_falls(one: Ledger) -> None:
    one.stored(State(1, 0, 0, (1, 2)))


def leader_epoch_falls(one: Ledger) -> None:
    one.stored(State(2, 3, 1, (2,)))
    one.stored(State(2, 2, 2, (2,)))


def leader_changes_in_its_epoch(one: Ledger) -> None:
    one.stored(State(2, 0, 1, (1, 2)))


def leader_outside_the_isr(one: Ledger) -> None:
    one.stored(State(3, 1, 1, (1, 2)))


def offsets_given_twice(one: Ledger) -> None:
    one.commits(2, 3, [OTHER])


def record_invented(one: Ledger) -> None:
    one.commits(1, 4, [Stored(3, 3, 0, 44, (b"nobody's",))])


def idempotent_record_twice(one: Ledger) -> None:
    one.commits(1, 4, [Stored(3, 3, 0, 44, (b"c",))])


def watermark_beyond_the_log(one: Ledger) -> None:
    one.commits(1, 5, [Stored(3, 3, 0, 44, (b"d",))])


def stable_end_goes_back(one: Ledger) -> None:
    one.stable(1, 0, 3, is_known=True)
    one.stable(2, 1, 1, is_known=False)
    one.stable(2, 1, 2, is_known=True)


def member_is_behind(one: Ledger) -> None:
    one.holds(2, 2, why="a member of the ISR")


def not_on_disk(one: Ledger) -> None:
    one.synced(2, 1)


def logs_differ(one: Ledger) -> None:
    one.agrees(2, [ONE, OTHER])


def log_is_short(one: Ledger) -> None:
    one.agrees(2, [ONE])


def producers_know_too_much(one: Ledger) -> None:
    one.remembers(2, 4, 3)


def acknowledged_but_not_committed(one: Ledger) -> None:
    one.acknowledges(b"d", 3)


def acknowledged_elsewhere(one: Ledger) -> None:
    one.acknowledges(b"c", 7)


def read_beyond_the_watermark(one: Ledger) -> None:
    one.reads("r1", [TWO], 2)


def read_what_goes_away(one: Ledger) -> None:
    one.reads("r1", [OTHER], 3)


def end_goes_back(one: Ledger) -> None:
    one.reads("r1", [ONE, TWO], 3)
    one.tells_end("r1", 2)


def deleted_records_return(one: Ledger) -> None:
    one.asks_deletion(2)
    one.deletes(2)
    one.begins(1, 0, 1)


def deleted_unasked(one: Ledger) -> None:
    one.asks_deletion(1)
    one.begins(1, 0, 2)


def nobody_leads_at_the_end(one: Ledger) -> None:
    one.stored(State(-1, 1, 1, (1, 2, 3)))
    one.settles((1, 2, 3))


def isr_stays_short(one: Ledger) -> None:
    one.stored(State(1, 0, 1, (1, 2)))
    one.settles((1, 2, 3))


def logs_diverge(one: Ledger) -> None:
    one.ends({1: [ONE, TWO, Stored(3, 3, 0, 44)], 2: [ONE, TWO, Stored(3, 3, 1, 45)]})


def acknowledged_record_lost(one: Ledger) -> None:
    one.acknowledged[b"d"] = 3
    one.ends({1: [ONE, TWO], 2: [ONE, TWO]})


def lost_by_no_election(one: Ledger) -> None:
    one.loses([ONE, TWO])
    one.commits(2, 3, [OTHER])


REJECTED: dict[Callable[[Ledger], None], str] = {
    two_leaders: "one leader an epoch",
    alone_after_an_election: "nobody acknowledges alone once another may lead",
    partition_epoch_falls: "partition epochs rise",
    leader_epoch_falls: "leader epochs never fall",
    leader_changes_in_its_epoch: "a leader epoch has one leader",
    leader_outside_the_isr: "leaders are in sync",
    offsets_given_twice: "committed offsets are given once",
    record_invented: "no record is invented",
    idempotent_record_twice: "idempotent records are there once",
    watermark_beyond_the_log: "a leader has what it commits",
    stable_end_goes_back: "the last stable offset never goes back",
    member_is_behind: "a member of the ISR has all that is committed",
    not_on_disk: "with flush=group what is committed is on disk",
    logs_differ: "logs agree below the high watermark",
    log_is_short: "logs agree below the high watermark",
    producers_know_too_much: "producers are known by what is in the log",
    acknowledged_but_not_committed: "what is acknowledged is committed",
    acknowledged_elsewhere: "an acknowledgement names the record's offset",
    read_beyond_the_watermark: "nothing beyond the high watermark is served",
    read_what_goes_away: "what was read is committed, and stays",
    end_goes_back: "the high watermark never goes back for a reader",
    deleted_records_return: "what is deleted stays deleted",
    deleted_unasked: "nothing is deleted unasked",
    nobody_leads_at_the_end: "after healing there is a leader",
    isr_stays_short: "after healing everybody is in sync",
    logs_diverge: "no divergence after healing",
    lost_by_no_election: "committed offsets are given once",
    acknowledged_record_lost: "no acknowledged record is lost",
}


@pytest.mark.parametrize("history", REJECTED, ids=lambda one: one.__name__)
def test_a_history_that_may_not_be_is_rejected(history: Callable[[Ledger], None]) -> None:
    with pytest.raises(BrokenError) as found:
        history(ledger())
    assert found.value.invariant == REJECTED[history]


def test_a_history_that_may_be_is_taken() -> None:
    one = ledger()
    one.stored(State(2, 1, 1, (2, 3), (1,)))
    one.stored(one.state)
    one.leads(2, 1)
    one.claims_alone(2, 1)
    one.acknowledges(b"c", 2)
    one.reads("r1", [ONE, TWO], 3)
    one.tells_end("r1", 3)
    one.remembers(2, 3, 3)
    one.stable(2, 1, 3, is_known=True)
    one.stable(1, 0, 1, is_known=True)
    one.synced(2, 3)
    one.stored(State(2, 1, 2, (1, 2, 3)))
    one.settles((1, 2, 3))
    one.ends({1: [ONE, TWO], 2: [ONE, TWO]})


def test_deleted_records_may_be_missing() -> None:
    one = ledger()
    one.acknowledges(b"a", 0)
    one.acknowledges(b"c", 2)
    one.asks_deletion(2)
    one.deletes(1)
    one.begins(1, 0, 2)
    one.stored(State(2, 1, 1, (2, 3)))
    one.begins(1, 0, 0)
    one.ends({1: [TWO], 2: [ONE, TWO]}, log_start=2)


def test_what_an_unclean_election_leaves_is_committed_and_nothing_else() -> None:
    one = ledger()
    one.acknowledges(b"a", 0)
    one.acknowledges(b"c", 2)
    assert one.loses([ONE, OTHER]) == 2
    again = Stored(3, 3, 1, 44, (b"c",))
    one.commits(2, 4, [OTHER, again])
    one.acknowledges(b"c", 3)
    one.ends({1: [ONE, OTHER, again], 2: [ONE, OTHER, again]})
    other = ledger()
    other.loses([])
    assert (other.end, other.has_lost) == (0, True)
    assert ledger().loses([ONE, TWO, OTHER]) == 3, "what is not committed is not lost"
