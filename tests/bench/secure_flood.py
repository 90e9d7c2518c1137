"""A flood of logins with wrong passwords, and what it does to a producer that is in already."""

import asyncio
import concurrent.futures
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.broker import BrokerUnderTest
from bench.replication import SMALL_BYTES, paced_of, started
from bench.replication_catch_up import percentile
from bench.replication_load import ReplicatedPlan
from bench.report import Row
from tidemark.cli.dev.layout import HOST
from tidemark.client.config import Address, ClientConfig
from tidemark.client.errors import ClientError
from tidemark.client.wire.connection import BrokerConnection

RATE_S: Final = 200
SECONDS: Final = 8
ATTACKERS: Final = 32
"""Connections that try at the same time, each again as soon as it was refused."""
P99_TIMES_MAX: Final = 1.5
TOPIC: Final = "beside-a-flood"


def bench_flood(
    one: BrokerUnderTest, port: int, login_port: int, config: ClientConfig, *, runs: int
) -> list[Row]:
    """The producer's latencies alone and beside the flood, in turns; medians. ``config`` is that of
    a client with a wrong password.
    """
    one.create_topic(TOPIC)
    plan = ReplicatedPlan(port, TOPIC, SMALL_BYTES, 1, RATE_S * SECONDS, rate_s=RATE_S)
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(runs):
        for is_flooded in (False, True):
            with (
                flood(login_port, config, ATTACKERS if is_flooded else 0) as refused,
                started(plan) as load,
            ):
                took = paced_of(load).took_ms[RATE_S // 2 :]
            found[is_flooded].append(
                {
                    "p50": statistics.median(took),
                    "p99": percentile(took, 0.99),
                    "refused_s": len(refused) / SECONDS,
                }
            )
    one.delete_topic(TOPIC)
    alone, beside = (
        {key: statistics.median(each[key] for each in found[which]) for key in found[which][0]}
        for which in (False, True)
    )
    rows = [_row("no flood", alone), _row(f"{ATTACKERS} connections try passwords", beside)]
    rows[1].ratio = beside["p99"] / alone["p99"]
    rows[1].bound, rows[1].held = f"p99 <={P99_TIMES_MAX}", rows[1].ratio <= P99_TIMES_MAX
    return rows


def _row(name: str, found: dict[str, float]) -> Row:
    row = Row(f"a producer, {SMALL_BYTES} B x {RATE_S}/s", name, requests_s=RATE_S)
    row.p50_ms, row.p99_ms = found["p50"], found["p99"]
    row.extra = {"logins_refused_s": found["refused_s"]}
    return row


@contextmanager
def flood(port: int, config: ClientConfig, connections: int) -> Iterator[list[str]]:
    """Log in again and again, in a thread. Yields the errors of those that were refused."""
    over, refused = threading.Event(), list[str]()

    async def attack() -> None:
        while not over.is_set():
            try:
                (await BrokerConnection.open(Address(HOST, port), config)).close()
            except (ClientError, OSError) as error:
                refused.append(str(error))
            else:
                raise AssertionError("a wrong password was taken")

    async def attack_all() -> None:
        await asyncio.gather(*(attack() for _ in range(connections)))

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        attacked = pool.submit(asyncio.run, attack_all())
        try:
            yield refused
        finally:
            over.set()
        attacked.result()
