"""The offload's manifest: planning, coverage, and its text."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.topics import TopicPartition
from tidemark_jobs.offload.manifest import (
    DataFile,
    LogBounds,
    ManifestError,
    OffsetRange,
    PlannedRange,
    StagedFile,
    Version,
    extended,
    from_json,
    next_version,
    plan_round,
    shown,
    to_json,
    totals,
)

ORDERS = TopicPartition("orders", 0)
IDS = {"orders": "aa"}
NOTHING = Version.nothing(["topic", "date"])


def staged(first: int, last: int, *, partition: TopicPartition = ORDERS) -> StagedFile:
    name = f"{partition}-{first}.parquet"
    file = DataFile(name, partition.topic, partition.partition, first, last, last - first + 1, 10)
    return StagedFile(f"run/{name}", file)


def plan(
    version: Version,
    bounds: Mapping[TopicPartition, LogBounds],
    *,
    offsets_max: int = 100,
    fail_on_data_loss: bool = True,
) -> dict[TopicPartition, PlannedRange]:
    ids = {each.topic: IDS.get(each.topic, "bb") for each in bounds}
    return plan_round(
        version, bounds, ids, offsets_max=offsets_max, fail_on_data_loss=fail_on_data_loss
    )


def after(version: Version, planned: Mapping[TopicPartition, PlannedRange]) -> Version:
    files = [
        staged(each.offsets.start, each.offsets.end - 1, partition=partition)
        for partition, each in planned.items()
    ]
    return next_version(version, planned, files, run="r", committed_at_ms=1, topic_ids=IDS)


def covered_to(end: int) -> Version:
    return after(NOTHING, {ORDERS: PlannedRange(OffsetRange(0, end), None)})


def test_a_new_partition_is_read_from_where_its_log_begins() -> None:
    planned = plan(NOTHING, {ORDERS: LogBounds(7, 50)})
    assert planned == {ORDERS: PlannedRange(OffsetRange(7, 50), None)}


def test_a_round_takes_so_many_offsets_of_each_partition() -> None:
    planned = plan(NOTHING, {ORDERS: LogBounds(0, 500)}, offsets_max=100)
    assert planned[ORDERS].offsets == OffsetRange(0, 100)


def test_the_next_round_follows_the_last() -> None:
    planned = plan(covered_to(100), {ORDERS: LogBounds(0, 120)})
    assert planned[ORDERS].offsets == OffsetRange(100, 120)


def test_nothing_is_planned_when_caught_up() -> None:
    assert plan(covered_to(100), {ORDERS: LogBounds(0, 100)}) == {}


def test_an_empty_partition_is_not_planned() -> None:
    assert plan(NOTHING, {ORDERS: LogBounds(5, 5)}) == {}


def test_partitions_that_grew_are_planned_too() -> None:
    new = TopicPartition("orders", 1)
    bounds = {ORDERS: LogBounds(0, 100), new: LogBounds(0, 3)}
    assert list(plan(covered_to(100), bounds)) == [new]


def test_deleted_offsets_that_were_not_covered_are_an_error() -> None:
    with pytest.raises(ManifestError, match=r"\[100, 110\) were deleted"):
        plan(covered_to(100), {ORDERS: LogBounds(110, 200)})


def test_deleted_offsets_may_be_skipped_and_are_named() -> None:
    planned = plan(covered_to(100), {ORDERS: LogBounds(110, 200)}, fail_on_data_loss=False)
    assert planned[ORDERS] == PlannedRange(OffsetRange(110, 200), OffsetRange(100, 110))


def test_a_gap_stays_visible_in_the_coverage() -> None:
    version = covered_to(100)
    planned = plan(version, {ORDERS: LogBounds(110, 120)}, fail_on_data_loss=False)
    assert after(version, planned).covered[ORDERS] == (OffsetRange(0, 100), OffsetRange(110, 120))


def test_a_log_that_shrank_is_an_error() -> None:
    with pytest.raises(
        ManifestError, match="ends at offset 40, and offsets up to 100 are already covered"
    ):
        plan(covered_to(100), {ORDERS: LogBounds(0, 40)})


def test_a_topic_made_again_is_an_error() -> None:
    with pytest.raises(ManifestError, match="deleted and created again"):
        plan_round(covered_to(5), {ORDERS: LogBounds(0, 9)}, {"orders": "cc"}, offsets_max=9)


def test_a_file_outside_of_its_range_is_our_bug() -> None:
    planned = {ORDERS: PlannedRange(OffsetRange(0, 5), None)}
    with pytest.raises(AssertionError):
        next_version(NOTHING, planned, [staged(3, 5)], run="r", committed_at_ms=1, topic_ids=IDS)


def test_more_rows_than_offsets_are_our_bug() -> None:
    planned = {ORDERS: PlannedRange(OffsetRange(0, 5), None)}
    twice = [staged(0, 3), staged(1, 4)]
    with pytest.raises(AssertionError, match="more rows than offsets"):
        next_version(NOTHING, planned, twice, run="r", committed_at_ms=1, topic_ids=IDS)


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 30))
@settings(max_examples=60)
def test_rounds_cover_every_offset_once(growth: list[int], offsets_max: int) -> None:
    version, read, end = NOTHING, list[int](), 0
    for grown in growth:
        end += grown
        while planned := plan(version, {ORDERS: LogBounds(0, end)}, offsets_max=offsets_max):
            read += range(*planned[ORDERS].offsets)
            version = after(version, planned)
    assert read == list(range(end))


def test_ranges_that_adjoin_are_one() -> None:
    assert extended([OffsetRange(0, 5)], OffsetRange(5, 9)) == (OffsetRange(0, 9),)


def test_a_version_survives_its_text() -> None:
    version = covered_to(100)
    assert from_json(to_json(version), name="v") == version


def test_the_text_is_json_with_a_line_a_file() -> None:
    text = to_json(covered_to(100))
    assert json.loads(text)["covered"]["orders"]["partitions"] == {"0": [[0, 100]]}
    assert sum('"staged"' in line for line in text.splitlines()) == 1


def test_a_newer_format_is_refused_by_name() -> None:
    text = to_json(covered_to(1)).replace('"format": 1', '"format": 9')
    with pytest.raises(ManifestError, match=r"v\.json has format 9"):
        from_json(text, name="v.json")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": "x"}'])
def test_what_is_no_version_is_refused_by_name(text: str) -> None:
    with pytest.raises(ManifestError, match=r"v\.json is not a valid version"):
        from_json(text, name="v.json")


def test_totals_are_over_all_versions() -> None:
    first = covered_to(100)
    second = after(first, plan(first, {ORDERS: LogBounds(0, 130)}))
    assert totals([first, second])[ORDERS] == (2, 130, 20)


def test_people_see_a_line_a_partition() -> None:
    version = covered_to(100)
    assert "orders-0   [0, 100)      1   100  0.0" in shown([version])


def test_people_see_the_files_when_they_ask() -> None:
    assert "orders-0-0.parquet" in shown([covered_to(100)], with_files=True)


def test_an_empty_manifest_says_so() -> None:
    assert shown([]) == "nothing is covered yet"
