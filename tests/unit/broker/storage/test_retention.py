"""Segments removed by retention: by time, by size, by log start, never beyond the high
watermark.
"""

from dataclasses import replace
from typing import Any

import pytest
from broker.storage.retention import removable_count, roll_ms
from broker.storage.segment import SegmentView
from tidemark.model.topic_configs import TopicConfig, topic_config

KEEP = replace(topic_config({}), retention_ms=-1, retention_bytes=-1)


def segments(*stamps: int, created_ms: int = 0) -> list[SegmentView]:
    """A segment of 100 bytes and 10 records for each largest timestamp; the last is active."""
    return [
        SegmentView(n * 10, n * 10 + 10, 100, f"{n}", stamp, created_ms, n == len(stamps) - 1)
        for n, stamp in enumerate(stamps)
    ]


def count(views: list[SegmentView], config: TopicConfig, **changes: Any) -> int:
    asked = {"now_ms": 1_000, "log_start": 0, "high_watermark": 10**6} | changes
    return removable_count(views, config, **asked)


@pytest.mark.feature("A17")
def test_old_segments_go_in_order() -> None:
    by_time = replace(KEEP, retention_ms=500)
    assert count(segments(100, 499, 600), by_time) == 2
    assert count(segments(100, 600, 200, 700), by_time) == 1
    assert count(segments(100, 200), by_time) == 2, "the active one is rolled first"


def test_nothing_goes_beyond_the_high_watermark() -> None:
    by_time = replace(KEEP, retention_ms=500)
    assert count(segments(1, 2, 3), by_time, high_watermark=19) == 1


def test_without_timestamps_the_time_of_the_roll_counts() -> None:
    """Records may have been written up to then, and into the active segment until now."""
    by_time = replace(KEEP, retention_ms=500)
    assert count(segments(-1, -1, created_ms=600), by_time) == 0
    assert count(segments(-1, -1, created_ms=400), by_time) == 1
    first, *others = segments(-1, -1, -1, created_ms=600)
    assert count([first._replace(created_ms=1), *others], by_time) == 0


@pytest.mark.parametrize(
    ("bytes_max", "gone"), [(0, 3), (1, 2), (100, 2), (150, 1), (299, 0), (300, 0)]
)
def test_what_is_over_the_size_goes_in_whole_segments(bytes_max: int, gone: int) -> None:
    """All of it if no byte may stay: operators empty topics so, and Kafka does it."""
    assert count(segments(1, 2, 3), replace(KEEP, retention_bytes=bytes_max)) == gone


def test_below_the_log_start_all_goes_even_when_compacted() -> None:
    compacted = replace(KEEP, cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    assert count(segments(1, 2, 3), compacted, log_start=19) == 1
    assert count(segments(1, 2, 3), compacted, log_start=30) == 2, "the active one stays"


def test_an_empty_active_segment_stays() -> None:
    (empty,) = (one._replace(size_bytes=0) for one in segments(-1))
    assert count([empty], replace(KEEP, retention_ms=0, retention_bytes=0)) == 0


def test_jitter_rolls_earlier() -> None:
    config = replace(KEEP, segment_ms=1_000, segment_jitter_ms=300)
    assert roll_ms(config, lambda most: most) == 700
    compacted = replace(config, cleanup_policy=("compact",), max_compaction_lag_ms=200)
    assert roll_ms(compacted, lambda most: most // 2) == 100
