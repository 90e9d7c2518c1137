"""What metrics cost on the produce path: small requests to a broker that takes the times of
requests, to one that does not, and to one whose metrics are read all the time.
"""

import concurrent.futures
import statistics
import threading
import time
import timeit
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from bench.broker import BrokerUnderTest, broker
from bench.frames import PRODUCE_VERSION
from bench.processes import measure
from bench.produce import SMALL_BYTES, plan_for
from bench.report import Row
from bench.unmetered import UnmeteredCluster
from broker.shell.request_times import RequestTimes
from tidemark.cli.dev.layout import HOST
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_request_header, request_header
from tidemark.runtime.clock import Clock

REQUESTS: Final = 100_000
SCRAPE_S: Final = 1.0
"""Time between two readings of the metrics; Prometheus reads every 15 s by default."""
_TOTAL: Final = REQUESTS * SMALL_BYTES
_US: Final = 1e6

WITHOUT: Final = "without times and histograms"
WITH: Final = "with metrics"
SCRAPED: Final = "with metrics, read every second"


def bench_metering(directory: Path, *, runs: int) -> list[Row]:
    """Three rows for each number of connections, measured in turns: medians of CPU."""
    rows = [_alone(runs)]
    with (
        broker(directory / "without", cluster_type=UnmeteredCluster) as bare,
        broker(directory / "with") as metered,
    ):
        for connections in (1, 4):
            found: dict[str, list[tuple[float, float]]] = {WITHOUT: [], WITH: [], SCRAPED: []}
            for number in range(runs):
                for name, one in ((WITHOUT, bare), (WITH, metered), (SCRAPED, metered)):
                    reading = scraping(one) if name == SCRAPED else nullcontext()
                    with reading:
                        found[name].append(_produced(one, f"m-{number}", connections))
            rows += [_row(name, connections, found) for name in found]
    return rows


def _alone(runs: int) -> Row:
    """CPU of the times of one request in this process, without a broker: two readings of the clock
    and one histogram. The least of the runs.
    """
    times = RequestTimes(Clock())
    header = request_header(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "bench")
    read = read_request_header(memoryview(header))

    def request() -> None:
        times.answered(read, times.now_s(), _NOBODY)

    repeat = max(3, runs)
    best_s = min(timeit.repeat(request, timer=time.process_time, number=REQUESTS, repeat=repeat))
    row = Row("metrics: in this process", "times of one request")
    row.extra = {"cpu_us_per_request": best_s * _US / REQUESTS}
    return row


class _Nobody:
    peer = "127.0.0.1:1"
    listener_name = "CLIENT"


_NOBODY: Final = _Nobody()


def _produced(one: BrokerUnderTest, topic: str, connections: int) -> tuple[float, float]:
    """CPU of the broker in us a request, and requests a second."""
    one.create_topic(topic, connections)
    try:
        outcome, cpu_s = measure(
            plan_for(SMALL_BYTES, _TOTAL, one.port, topic, connections), one.pid
        )
    finally:
        one.delete_topic(topic)
    return cpu_s * _US / outcome.requests, outcome.requests / outcome.seconds


def _row(name: str, connections: int, found: dict[str, list[tuple[float, float]]]) -> Row:
    cpu_us, floor_us = (
        statistics.median(cpu for cpu, _ in found[which]) for which in (name, WITHOUT)
    )
    row = Row(
        f"metrics: produce acks=1, {SMALL_BYTES} B, {connections} connections",
        name,
        requests_s=statistics.median(rate for _, rate in found[name]),
        ratio=cpu_us / floor_us,
    )
    row.extra = {"cpu_us_per_request": cpu_us}
    return row


@contextmanager
def scraping(one: BrokerUnderTest) -> Iterator[None]:
    """Read the metrics of a broker every ``SCRAPE_S``, in a thread."""
    over = threading.Event()
    url = f"http://{HOST}:{one.member.ports['ops']}/metrics"

    def read() -> None:
        while not over.wait(SCRAPE_S):
            with urllib.request.urlopen(url) as answer:
                answer.read()

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        reading = pool.submit(read)
        try:
            yield
        finally:
            over.set()
        reading.result()
