import pytest
from broker.core.cleaning_turns import CleaningTurns, Due
from tidemark.model.topics import TopicPartition

A, B, C = (TopicPartition(name, 0) for name in "abc")
DUE = (Due(A, 0.9), Due(B, 0.6), Due(C, 0.7))


def order(turns: CleaningTurns) -> list[TopicPartition]:
    """Take one log after the other, as if each was clean then."""
    left, taken = [one for one in DUE if turns.takes(one.topic_partition)], []
    while (one := turns.next_of(left)) is not None:
        left.remove(one)
        taken.append(one.topic_partition)
    return taken


def test_the_dirtiest_log_is_first() -> None:
    assert order(CleaningTurns()) == [A, C, B]
    assert CleaningTurns().next_of(()) is None


def test_a_log_whose_round_was_cut_short_comes_after_all_others_until_one_is_completed() -> None:
    turns = CleaningTurns()
    turns.cut_short(A)
    assert order(turns) == [C, B, A]
    turns.completed(A)
    assert order(turns) == [A, C, B]


def test_a_log_that_failed_is_left_out_and_not_the_others() -> None:
    turns = CleaningTurns()
    turns.cut_short(A)
    turns.failed(A)
    assert order(turns) == [C, B]
    assert turns.uncleanable == {A}


@pytest.mark.parametrize("is_gone", [False, True])
def test_another_log_of_the_name_is_compacted(is_gone: bool) -> None:
    turns = CleaningTurns()
    turns.failed(A)
    turns.retain({A, B, C})
    assert order(turns) == [C, B]
    if is_gone:
        turns.retain({B, C})
    else:
        turns.forget(A)
    assert order(turns) == [A, C, B]
    assert turns.uncleanable == frozenset()
