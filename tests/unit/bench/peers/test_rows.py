"""Sizes of the loads."""

from dataclasses import replace

from bench.peers.rows import (
    ROWS,
    Size,
    disk_bytes,
    records_a_second,
    records_of,
    warm_up_rounds,
)

_BY_NAME = {row.name: row for row in ROWS}
_SIZE = Size(512, 20.0)


def test_a_load_without_a_rate_has_as_many_records_as_make_its_bytes() -> None:
    assert records_of(_BY_NAME["bulk"], _SIZE) == 512 * 1_024
    assert records_a_second(_BY_NAME["bulk"]) == -1


def test_a_load_at_a_rate_lasts_its_seconds() -> None:
    row = _BY_NAME["wide"]
    assert records_of(row, _SIZE) == 20 * records_a_second(row)
    assert records_of(_BY_NAME["small"], _SIZE) == 20_000


def test_a_load_at_a_rate_writes_no_more_than_the_others() -> None:
    assert records_of(_BY_NAME["wide"], Size(512, 3_600.0)) == 512 * 1_024


def test_small_records_as_fast_as_they_go_are_counted() -> None:
    assert records_of(_BY_NAME["flatout"], _SIZE) == _SIZE.small_records


def test_a_run_that_is_not_counted_is_a_tenth() -> None:
    assert _SIZE.tenth() == Size(51, 2.0, small_records=1_000)
    assert replace(_SIZE, megabytes=5).tenth().megabytes == 1


def test_the_disk_has_room_for_three_replicas_twice() -> None:
    assert disk_bytes(_SIZE) - disk_bytes(replace(_SIZE, megabytes=0)) == 6 * (512 << 20)


def test_a_warm_up_is_made_of_topics_no_larger_than_a_run() -> None:
    assert warm_up_rounds(1_300, _SIZE) == [512, 512, 276]
    assert warm_up_rounds(1_024, _SIZE) == [512, 512]
    assert warm_up_rounds(0, _SIZE) == []
