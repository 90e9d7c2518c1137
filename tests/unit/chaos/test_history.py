"""The check accepts what keeps every promise, and rejects each history that breaks one."""

import pytest
from chaos.history import Acknowledgement, Findings, History, Partition, Record, Stream, check
from chaos.values import Name, write_value
from hypothesis import given
from hypothesis import strategies as st

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def name(sequence: int, key: str = "a", producer: str = "p1") -> Name:
    return Name(producer, key, sequence)


def log(*names: Name, first: int = 0) -> list[Record]:
    return [Record(first + at, write_value(one)) for at, one in enumerate(names)]


def history(read: list[Record], *, acknowledged: int = 3, sent: int = 3) -> History:
    """Key ``a`` of producer ``p1``, in partition 0; acknowledgements that name no offset."""
    told = [Acknowledgement(name(number), P0, -1) for number in range(acknowledged)]
    return History({Stream("p1", "a"): sent}, told, {}, {P0: read})


def broken(one: History) -> set[str]:
    return set(check(one).broken())


GOOD = log(name(0), name(1), name(2))


def test_a_history_without_fault_is_accepted() -> None:
    one = history(GOOD)
    one.followed[P0] = GOOD[:2]
    assert check(one) == Findings()


def test_a_lost_value_is_found() -> None:
    findings = check(history(log(name(0), name(2))))
    assert set(findings.broken()) == {"lost"}
    assert "p1/a/1" in findings.lost[0]


def test_the_last_values_lost_are_found() -> None:
    assert len(check(history(log(name(0)))).lost) == 2


def test_a_partition_lost_whole_is_found() -> None:
    assert len(check(history([])).lost) == 3


def test_what_was_sent_and_never_acknowledged_may_be_there_or_not() -> None:
    assert broken(history(GOOD, acknowledged=1)) == set()
    assert broken(history(log(name(0)), acknowledged=1)) == set()


def test_a_repeat_is_counted_and_allowed() -> None:
    findings = check(history([*GOOD, *log(name(1), first=3)]))
    assert findings.broken() == {}
    assert findings.duplicated == ["p1/a/1 at orders-0@1, orders-0@3"]


def test_a_repeat_does_not_hide_a_wrong_order() -> None:
    read = log(name(0), name(2), name(2), name(1))
    assert broken(history(read)) == {"out_of_order"}


def test_a_wrong_order_within_a_key_is_found() -> None:
    findings = check(history(log(name(0), name(2), name(1))))
    assert findings.out_of_order == ["p1/a/1 at orders-0@2, after 2 at orders-0@1"]


def test_keys_and_producers_have_orders_of_their_own() -> None:
    one = history(log(name(0), name(0, "b"), name(1), name(0, "a", "p2"), name(2)))
    one.sent |= {Stream("p1", "b"): 1, Stream("p2", "a"): 1}
    assert broken(one) == set()


@pytest.mark.parametrize("value", [b"?", b"p1/a/1 other padding", write_value(name(1))[:-1]])
def test_bytes_that_nobody_wrote_are_found(value: bytes) -> None:
    assert broken(history([*GOOD, Record(3, value)])) == {"invented"}


def test_a_value_that_was_never_sent_is_found() -> None:
    assert broken(history([*GOOD, *log(name(3), first=3)])) == {"invented"}
    assert broken(history([*GOOD, *log(name(0, "b"), first=3)])) == {"invented"}


def test_a_value_in_another_partition_is_found() -> None:
    one = history(log(name(0), name(1)))
    one.read_back[P1] = log(name(2))
    assert broken(one) == {"invented"}


def test_an_acknowledged_offset_that_holds_another_value_is_found() -> None:
    one = history(GOOD)
    one.acknowledged[1] = Acknowledgement(name(1), P0, 2)
    assert broken(one) == {"misplaced"}


def test_what_a_reader_saw_and_is_no_more_is_found() -> None:
    one = history(GOOD[:2], acknowledged=2)
    one.followed[P0] = GOOD
    assert check(one).unsaid == ["p1/a/2 at orders-0@2, later nothing"]


def test_what_a_reader_saw_and_is_other_now_is_found() -> None:
    one = history(GOOD)
    one.followed[P0] = log(name(0), name(2))
    assert broken(one) == {"unsaid"}


def test_a_reader_that_skipped_an_offset_is_found() -> None:
    one = history(GOOD)
    one.followed[P0] = [GOOD[0], GOOD[2]]
    assert broken(one) == {"torn"}


def test_a_reader_that_went_back_is_found() -> None:
    one = history(GOOD)
    one.followed[P0] = [*GOOD, GOOD[1]]
    assert broken(one) == {"torn"}


@given(st.integers(1, 40), st.data())
def test_any_one_value_taken_out_is_missed(count: int, data: st.DataObject) -> None:
    names = [name(number) for number in range(count)]
    out = data.draw(st.sampled_from(names))
    left = [one for one in names if one != out]
    findings = check(history(log(*left), acknowledged=count, sent=count))
    assert [line.partition(",")[0] for line in findings.lost] == [str(out)]


@given(st.integers(2, 40), st.data())
def test_any_two_neighbours_swapped_are_noticed(count: int, data: st.DataObject) -> None:
    names = [name(number) for number in range(count)]
    at = data.draw(st.integers(0, count - 2))
    names[at], names[at + 1] = names[at + 1], names[at]
    assert broken(history(log(*names), acknowledged=count, sent=count)) == {"out_of_order"}
