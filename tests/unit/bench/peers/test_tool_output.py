"""Output of Kafka's performance tools, as version 4.3.1 prints it."""

import pytest
from bench.peers.tool_output import consumed, produced

_PRODUCED = """\
18122 records sent, 3624.4 records/sec (3.54 MB/sec), 812.0 ms avg latency, 1467.0 ms max latency.
32768 records sent, 4096.0 records/sec (4.00 MB/sec), 171.41 ms avg latency, 381.00 ms max \
latency, 168 ms 50th, 289 ms 95th, 314 ms 99th, 377 ms 99.9th.
"""
_CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-02 03:04:05:678, 2026-01-02 03:04:13:678, 32.0000, 4.0000, 32768, 4096.0000, 4000, 4000, \
8.0000, 8192.0000
"""


def test_the_last_line_of_the_producer_counts() -> None:
    found = produced(_PRODUCED, record_bytes=1_024)
    assert (found.records, found.payload, found.seconds) == (32_768, 32 << 20, 8.0)
    assert (found.p50_ms, found.p99_ms) == (168.0, 314.0)


def test_the_consumer_reads_after_it_has_joined() -> None:
    found = consumed(_CONSUMED)
    assert (found.records, found.payload, found.seconds) == (32_768, 32 << 20, 4.0)


def test_output_without_a_result_is_an_error() -> None:
    with pytest.raises(ValueError, match="Connection refused"):
        produced("Connection refused", record_bytes=1)
    with pytest.raises(ValueError, match="no result of the consumer"):
        consumed(_CONSUMED.splitlines()[0])
