"""Results in the output of Kafka's performance tools."""

import re
from typing import Final

from bench.peers.figures import Outcome

_PRODUCED: Final = re.compile(
    r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .*latency, "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th",
    re.MULTILINE,
)
_MIB: Final = 1 << 20


def produced(output: str, record_bytes: int) -> Outcome:
    """Last line of ProducerPerformance. Raises ValueError."""
    lines = list(_PRODUCED.finditer(output))
    if not lines:
        raise ValueError(f"no result of the producer in {output[-500:]!r}")
    last = lines[-1]
    records = int(last["records"])
    return Outcome(
        records=records,
        payload=records * record_bytes,
        seconds=records / float(last["rate"]),
        p50_ms=float(last["p50"]),
        p99_ms=float(last["p99"]),
    )


def consumed(output: str) -> Outcome:
    """Table of ConsumerPerformance: a heading, and one line. Raises ValueError."""
    rows = [[word.strip() for word in line.split(",")] for line in output.splitlines()]
    headings = [place for place, row in enumerate(rows) if "data.consumed.in.MB" in row]
    if not headings or headings[0] + 1 >= len(rows):
        raise ValueError(f"no result of the consumer in {output[-500:]!r}")
    found = dict(zip(rows[headings[0]], rows[headings[0] + 1], strict=True))
    mib = float(found["data.consumed.in.MB"])
    # Without the time that it takes to join the group.
    seconds = mib / float(found["fetch.MB.sec"])
    return Outcome(int(found["data.consumed.in.nMsg"]), int(mib * _MIB), seconds)
