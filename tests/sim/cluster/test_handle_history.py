"""Each rule for durable handles rejects a history made by hand, and accepts a similar one that
keeps the rule.
"""

from collections.abc import Callable

import pytest

from sim.checkers import BrokenError
from sim.cluster.handle_workload import HandleHistory
from sim.cluster.txn_history import Row, TxnHistory

ROWS: dict[str, list[Row]] = {"orders": [(0, b"a")], "prices": [(0, b"b")]}
BOTH = frozenset({"one", "two"})


def history() -> HandleHistory:
    """Return a history: of handle x, writers one and two were committed, and lost was not; the
    outcome of y is unknown.
    """
    made = HandleHistory(TxnHistory())
    written = (("x", "one", b"a"), ("x", "two", b"b"), ("x", "lost", b"c"), ("y", "three", b"d"))
    for handle, name, value in written:
        txn = made.txns.begins(name)
        made.lets_in(handle, name, is_over=False)
        made.txns.writes(txn, "prices" if value == b"b" else "orders", value)
    made.asks("x", BOTH)
    made.asks("x", frozenset({"lost"}))
    made.tells("x", BOTH)
    made.asks("y", frozenset({"three"}))
    return made


def other_winners(one: HandleHistory) -> None:
    one.tells("x", frozenset({"lost"}))


def let_in_late(one: HandleHistory) -> None:
    one.lets_in("x", "late", is_over=True)


def loser_is_there(one: HandleHistory) -> None:
    one.ends({**ROWS, "orders": [(0, b"a"), (1, b"c")]})


def winner_is_gone(one: HandleHistory) -> None:
    one.ends({**ROWS, "prices": []})


REJECTED: dict[Callable[[HandleHistory], None], str] = {
    other_winners: "a transaction ends once",
    let_in_late: "nobody writes in what has ended",
    loser_is_there: "what is visible is what one commit named",
    winner_is_gone: "what is visible is what one commit named",
}


@pytest.mark.parametrize("bad", REJECTED, ids=lambda one: one.__name__)
def test_a_history_that_may_not_be_is_rejected(bad: Callable[[HandleHistory], None]) -> None:
    with pytest.raises(BrokenError) as found:
        bad(history())
    assert found.value.invariant == REJECTED[bad]


@pytest.mark.parametrize("unheard", [[], [(1, b"d")]])
def test_a_history_that_may_be_is_taken(unheard: list[Row]) -> None:
    one = history()
    one.tells("x", BOTH)
    one.ends({**ROWS, "orders": [*ROWS["orders"], *unheard]})
