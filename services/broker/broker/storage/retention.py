"""Choice of the time to roll a segment and of the segments to remove; pure, by Kafka's rules."""

from collections.abc import Callable, Sequence

from tidemark.model.topic_configs import TopicConfig

from broker.storage.segment import NO_TIMESTAMP, SegmentView


def roll_ms(config: TopicConfig, jitter: Callable[[int], int]) -> int:
    """Return the age at which a segment is rolled; ``jitter`` gets the maximum to subtract."""
    longest = config.segment_ms
    if config.is_compacted:
        longest = min(longest, config.max_compaction_lag_ms)
    jitter_ms_max = min(config.segment_jitter_ms, longest)
    return longest - (jitter(jitter_ms_max) if jitter_ms_max else 0)


def removable_count(
    segments: Sequence[SegmentView],
    config: TopicConfig,
    *,
    now_ms: int,
    log_start: int,
    high_watermark: int,
) -> int:
    """Return how many segments, from the oldest, retention removes now.

    Only whole segments below the high watermark are removed, oldest first without a gap. The active
    one counts too if it has records: the log rolls before it is removed.
    """
    below = 0
    while below < len(segments) - 1 and segments[below].end_offset <= log_start:
        below += 1
    if not config.deletes_by_retention:
        return below
    by_time = _by_time(segments, config.retention_ms, now_ms, high_watermark)
    by_size = _by_size(segments, config.retention_bytes, high_watermark)
    return max(below, by_time, by_size)


def _by_time(
    segments: Sequence[SegmentView], retention_ms: int, now_ms: int, high_watermark: int
) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for at, one in enumerate(segments):
        newest = one.max_timestamp
        if newest <= NO_TIMESTAMP:  # the last append counts: it was before the roll
            newest = now_ms if one.active else segments[at + 1].created_ms
        if not one.size_bytes and one.active:
            break
        if one.end_offset > high_watermark or now_ms - newest <= retention_ms:
            break
        count += 1
    return count


def _by_size(segments: Sequence[SegmentView], retention_bytes: int, high_watermark: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(one.size_bytes for one in segments) - retention_bytes
    count = 0
    for one in segments:
        if excess - one.size_bytes < 0 or one.end_offset > high_watermark:
            break
        if one.active and not one.size_bytes:
            break
        excess -= one.size_bytes
        count += 1
    return count
