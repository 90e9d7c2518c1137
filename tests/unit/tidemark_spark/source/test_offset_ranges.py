import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import OptionError
from tidemark_spark.source.offset_ranges import (
    Advance,
    Offsets,
    Range,
    Topic,
    TopicOffsets,
    advance,
    as_start,
    newcomers,
    offsets_from_json,
    offsets_of,
    offsets_to_json,
    prorated,
    ranges_between,
    same_positions,
    split,
    with_start,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ONE, TWO = Topic("1d", (0,)), Topic("1d", (0, 1))

names = st.sampled_from(["a", "b", "c-d"])
positions = st.dictionaries(st.integers(0, 12), st.integers(0))
topic_offsets = st.builds(
    TopicOffsets, st.sampled_from(["1d", "2e"]), positions, st.none() | positions
)
sizes = st.dictionaries(st.builds(TopicPartition, names, st.integers(0, 5)), st.integers(0, 1_000))
ranges = st.lists(
    st.builds(
        lambda number, start, size: Range(TopicPartition("a", number), "1d", start, start + size),
        st.integers(0, 9),
        st.integers(0, 100),
        st.integers(0, 1_000),
    ),
    max_size=6,
)


def at(topic_id: str = "1d", **offsets: int) -> Offsets:
    """``at(p0=5)``: topic a."""
    return {"a": TopicOffsets(topic_id, {int(name[1:]): to for name, to in offsets.items()})}


def from_(
    start: Offsets, topics: dict[str, Topic], latest: dict[TopicPartition, int], **more: int
) -> Advance:
    earliest = {each: more.get("earliest", 0) for each in newcomers(start, topics)}
    return advance(start, topics, latest=latest, earliest=earliest, rows_max=more.get("rows_max"))


@given(st.dictionaries(names, topic_offsets))
def test_offsets_come_back_from_json(offsets: dict[str, TopicOffsets]) -> None:
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


def test_equal_offsets_are_equal_texts() -> None:
    mixed = {"b": TopicOffsets("2e", {1: 5, 0: 4}), "a": TopicOffsets("1d", {10: 1, 9: 2})}
    assert str(offsets_to_json(mixed)) == str(
        {
            "a": {"id": "1d", "offsets": {"9": 2, "10": 1}},
            "b": {"id": "2e", "offsets": {"0": 4, "1": 5}},
        }
    )


@pytest.mark.parametrize("foreign", [{"a": {"0": 5}}, {"a": 5}, {"logOffset": 3}])
def test_offsets_of_another_source(foreign: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="not of this source"):
        offsets_from_json(foreign)


def test_the_first_batch_ends_with_its_start() -> None:
    """So whatever Spark is told at its replay, it has the same rows."""
    start = as_start(at(p0=3, p1=5))
    end = with_start(start, at(p0=9, p1=5, p2=2))
    stored = offsets_to_json(end)
    assert stored["a"]["start"] == {"0": 3, "1": 5}
    for asked_again in (start, as_start(at(p0=9, p1=5, p2=4)), as_start(at(p0=0)), {}):
        assert ranges_between(asked_again, offsets_from_json(stored)) == [Range(A0, "1d", 3, 9)]


def test_later_batches_start_where_the_one_before_ended() -> None:
    first = with_start(as_start(at(p0=3)), at(p0=9, p1=0))
    second = with_start(first, at(p0=9, p1=4))
    assert second == at(p0=9, p1=4)
    assert ranges_between(first, second) == [Range(A1, "1d", 0, 4)]


def test_the_first_batch_is_not_read_again_where_nothing_follows() -> None:
    first = with_start(as_start(at(p0=3)), at(p0=9))
    assert ranges_between(first, first) == []


def test_a_topic_that_was_made_again_has_no_start() -> None:
    assert with_start(as_start(at(p0=3)), at("2e", p0=0)) == at("2e", p0=0)


def test_a_start_is_no_progress() -> None:
    assert same_positions(as_start(at(p0=3)), at(p0=3))
    assert not same_positions(at(p0=3), at(p0=4))
    assert not same_positions(at(p0=3), at("2e", p0=3))


def test_only_known_positions_are_kept() -> None:
    assert offsets_of({"a": TWO}, {A1: 7}) == at(p1=7)


def test_all_there_is() -> None:
    assert from_(at(p0=5), {"a": ONE}, {A0: 9}) == Advance(at(p0=9), 4)


def test_nothing_new() -> None:
    assert from_(at(p0=5), {"a": ONE}, {A0: 5}) == Advance(at(p0=5), 0)


def test_a_limit_is_shared_by_size() -> None:
    found = from_(at(p0=0, p1=0), {"a": TWO}, {A0: 300, A1: 100}, rows_max=40)
    assert found == Advance(at(p0=30, p1=10), 400)


def test_a_new_partition_enters_unread() -> None:
    found = from_(at(p0=5), {"a": TWO}, {A0: 5, A1: 8})
    assert found == Advance(at(p0=5, p1=0), 0)


def test_a_new_partition_is_read_next() -> None:
    assert from_(at(p0=5, p1=0), {"a": TWO}, {A0: 5, A1: 8}) == Advance(at(p0=5, p1=8), 8)


def test_a_new_partition_without_its_first_records() -> None:
    found = from_(at(p0=5), {"a": TWO}, {A0: 5, A1: 8}, earliest=3)
    assert found.losses == ("a-1 is new and starts at offset 3 instead of 0",)


def test_a_new_topic_starts_where_it_starts() -> None:
    topics = {"a": ONE, "b": Topic("2e", (0,))}
    found = from_(at(p0=5), topics, {A0: 5, B0: 9}, earliest=4)
    assert found == Advance({**at(p0=5), "b": TopicOffsets("2e", {0: 4})}, 0)


def test_a_new_partition_that_is_not_to_enter() -> None:
    found = advance(at(p0=5), {"a": TWO}, latest={A0: 5, A1: 8}, earliest={})
    assert found == Advance(at(p0=5), 0)


def test_a_deleted_topic() -> None:
    found = from_(at(p0=5), {}, {})
    assert (found.offsets, found.losses) == ({}, ("topic 'a' (id 1d) was deleted",))


def test_a_topic_that_was_made_again() -> None:
    found = from_(at(p0=5), {"a": Topic("2e", (0,))}, {A0: 9}, earliest=0)
    assert found.offsets == at("2e", p0=0)
    assert "deleted and created again" in found.losses[0]


def test_a_log_that_was_cut() -> None:
    found = from_(at(p0=5), {"a": ONE}, {A0: 3})
    assert found.offsets == at(p0=3)
    assert found.losses == ("a-0 ends at offset 3, but was already read up to 5",)


def test_a_partition_that_is_gone() -> None:
    assert from_(at(p0=5, p1=5), {"a": ONE}, {A0: 5}).losses == (
        "partition 1 of 'a' no longer exists",
    )


def test_ranges_of_a_batch() -> None:
    assert ranges_between(at(p0=5, p1=2), at(p0=9, p1=2)) == [Range(A0, "1d", 5, 9)]


def test_what_enters_is_not_read() -> None:
    assert ranges_between(at(p0=5), at(p0=5, p1=0)) == []


def test_what_was_made_again_is_not_read_yet() -> None:
    assert ranges_between(at("1d", p0=5), at("2e", p0=9)) == []


@given(sizes, st.integers(1, 500))
def test_shares_fit_the_sizes(of_each: dict[TopicPartition, int], rows_max: int) -> None:
    shares = prorated(of_each, rows_max)
    assert all(min(1, size) <= shares[each] <= size for each, size in of_each.items())


@given(sizes, st.integers(1, 500))
def test_shares_are_within_the_limit_but_for_the_smallest(
    of_each: dict[TopicPartition, int], rows_max: int
) -> None:
    assert sum(prorated(of_each, rows_max).values()) <= rows_max + len(of_each)


@given(ranges, st.integers(1, 20), st.one_of(st.none(), st.integers(1, 300)))
def test_a_split_covers_the_same_offsets(
    whole: list[Range], partitions_min: int, records_max: int | None
) -> None:
    pieces = split(whole, partitions_min=partitions_min, records_max=records_max)
    covered = [(each.partition, offset) for each in pieces for offset in range(*each[2:])]
    assert covered == [(each.partition, offset) for each in whole for offset in range(*each[2:])]


@given(ranges, st.integers(1, 20), st.integers(1, 300))
def test_a_split_keeps_its_limits(
    whole: list[Range], partitions_min: int, records_max: int
) -> None:
    pieces = split(whole, partitions_min=partitions_min, records_max=records_max)
    records = sum(each.size for each in whole)
    assert all(0 < each.size <= records_max for each in pieces)
    assert len(pieces) >= min(partitions_min, records)


def test_without_a_wish_a_range_is_a_task() -> None:
    whole = [Range(A0, "1d", 0, 1_000_000), Range(A1, "1d", 3, 3)]
    assert split(whole) == whole[:1]


def test_large_ranges_get_more_tasks() -> None:
    whole = [Range(A0, "1d", 0, 900), Range(A1, "1d", 0, 10)]
    pieces = split(whole, partitions_min=4)
    assert [each.size for each in pieces] == [300, 300, 300, 10]
