import pytest
from broker.core.read_replica import Candidate, preferred_follower
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import BrokerId, InstantMs

RACKS = ("", "a", "b")


def at(
    broker: int, rack: str = "b", *, start: int = 0, end: int = 10, caught_up: int = 0
) -> Candidate:
    return Candidate(BrokerId(broker), rack, start, end, InstantMs(caught_up))


CANDIDATES = st.lists(
    st.builds(
        at,
        st.integers(1, 9),
        st.sampled_from(RACKS),
        start=st.integers(0, 3),
        end=st.integers(3, 6),
        caught_up=st.integers(0, 2),
    ),
    unique_by=lambda one: one.broker_id,
    max_size=6,
)


def plain(rack: str, leader_rack: str, offset: int, followers: list[Candidate]) -> int | None:
    """Kafka's rules one after the other: each strikes out all but the best."""
    left = [one for one in followers if one.rack == rack]
    left = [one for one in left if offset in range(one.log_start, one.log_end + 1)]
    if rack == "" or leader_rack == rack or not left:
        return None
    left = [one for one in left if one.log_end == max(each.log_end for each in left)]
    left = [one for one in left if one.caught_up_at == max(each.caught_up_at for each in left)]
    return max(one.broker_id for one in left)


@pytest.mark.feature("A06")
@given(st.sampled_from(RACKS), st.sampled_from(RACKS), st.integers(0, 7), CANDIDATES)
def test_it_is_the_plain_rules(
    rack: str, leader_rack: str, offset: int, followers: list[Candidate]
) -> None:
    chosen = preferred_follower(rack, leader_rack, offset, followers)
    assert chosen == plain(rack, leader_rack, offset, followers)


@pytest.mark.feature("A06")
def test_a_consumer_without_a_rack_or_in_the_leaders_reads_from_the_leader() -> None:
    assert preferred_follower("", "a", 5, [at(2, "")]) is None
    assert preferred_follower("b", "b", 5, [at(2)]) is None
    assert preferred_follower("c", "a", 5, [at(2)]) is None
    assert preferred_follower("b", "a", 5, [at(2)]) == 2


@pytest.mark.feature("A06")
@pytest.mark.parametrize(
    ("best", "other"),
    [(at(2, end=11), at(3)), (at(2, caught_up=1), at(3)), (at(3), at(2)), (at(2), at(3, start=6))],
)
def test_the_follower_that_is_furthest_is_preferred(best: Candidate, other: Candidate) -> None:
    assert preferred_follower("b", "a", 5, [other, best]) == best.broker_id
