"""Acknowledgements by offset as batches on the wire."""

from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.share.ack_batches import GAP, RUN_MIN, AckBatch, AcknowledgeType, batches_of

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


def test_consecutive_offsets_of_one_type_are_one_batch() -> None:
    assert batches_of(dict.fromkeys(range(5, 500), ACCEPT)) == [AckBatch(5, 499, (ACCEPT,))]


def test_offsets_that_do_not_follow_are_batches_of_their_own() -> None:
    found = batches_of({5: ACCEPT, 7: ACCEPT, 8: ACCEPT})
    assert found == [AckBatch(5, 5, (ACCEPT,)), AckBatch(7, 8, (ACCEPT,))]


def test_short_runs_of_several_types_are_one_batch_with_a_type_for_each() -> None:
    found = batches_of({1: ACCEPT, 2: ACCEPT, 3: GAP, 4: RELEASE})
    assert found == [AckBatch(1, 4, (ACCEPT, ACCEPT, GAP, RELEASE))]


def test_a_long_run_is_a_batch_of_its_own() -> None:
    types = {0: RELEASE} | dict.fromkeys(range(1, 1 + RUN_MIN), ACCEPT) | {1 + RUN_MIN: RELEASE}
    found = batches_of(types)
    assert [one.types for one in found] == [(RELEASE,), (ACCEPT,), (RELEASE,)]


def test_nothing_is_no_batch() -> None:
    assert batches_of({}) == []


@given(st.dictionaries(st.integers(0, 80), st.sampled_from([0, 1, 2, 3])))
def test_batches_say_what_was_decided(types: dict[int, int]) -> None:
    found: dict[int, int] = {}
    for first, last, kinds in batches_of(types):
        count = last - first + 1
        assert len(kinds) in (1, count)
        each = kinds * count if len(kinds) == 1 else kinds
        found.update(zip(range(first, last + 1), each, strict=True))
    assert found == types
