"""Acknowledgements by offset as batches on the wire."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.share.ack_batches import (
    GAP,
    RUN_MIN,
    AckBatch,
    AcknowledgeType,
    Decision,
    Decisions,
    batches_of,
)

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


def plain(types: Mapping[int, int]) -> Decisions:
    return {offset: Decision(kind) for offset, kind in types.items()}


def test_consecutive_offsets_of_one_type_are_one_batch() -> None:
    assert batches_of(plain(dict.fromkeys(range(5, 500), ACCEPT))) == [AckBatch(5, 499, (ACCEPT,))]


def test_offsets_that_do_not_follow_are_batches_of_their_own() -> None:
    found = batches_of(plain({5: ACCEPT, 7: ACCEPT, 8: ACCEPT}))
    assert found == [AckBatch(5, 5, (ACCEPT,)), AckBatch(7, 8, (ACCEPT,))]


def test_short_runs_of_several_types_are_one_batch_with_a_type_for_each() -> None:
    found = batches_of(plain({1: ACCEPT, 2: ACCEPT, 3: GAP, 4: RELEASE}))
    assert found == [AckBatch(1, 4, (ACCEPT, ACCEPT, GAP, RELEASE))]


def test_a_long_run_is_a_batch_of_its_own() -> None:
    types = {0: RELEASE} | dict.fromkeys(range(1, 1 + RUN_MIN), ACCEPT) | {1 + RUN_MIN: RELEASE}
    found = batches_of(plain(types))
    assert [one.types for one in found] == [(RELEASE,), (ACCEPT,), (RELEASE,)]


def test_nothing_is_no_batch() -> None:
    assert batches_of({}) == []


def test_releases_with_other_terms_are_batches_of_their_own() -> None:
    later, unseen = Decision(RELEASE, 70), Decision(RELEASE, is_unseen=True)
    found = batches_of({1: Decision(ACCEPT), 2: later, 3: later, 4: unseen, 5: Decision(RELEASE)})
    assert found == [
        AckBatch(1, 1, (ACCEPT,)),
        AckBatch(2, 3, (RELEASE,), 70),
        AckBatch(4, 4, (RELEASE,), is_unseen=True),
        AckBatch(5, 5, (RELEASE,)),
    ]


DECISIONS = st.builds(
    Decision, st.sampled_from([0, 1, 2, 3]), st.sampled_from([0, 0, 7]), st.booleans()
)


@given(st.dictionaries(st.integers(0, 80), DECISIONS))
def test_batches_say_what_was_decided(decisions: dict[int, Decision]) -> None:
    found: dict[int, Decision] = {}
    for first, last, kinds, delay_ms, is_unseen in batches_of(decisions):
        count = last - first + 1
        assert len(kinds) in (1, count)
        each = kinds * count if len(kinds) == 1 else kinds
        for offset, kind in zip(range(first, last + 1), each, strict=True):
            found[offset] = Decision(kind, delay_ms, is_unseen)
    assert found == decisions
