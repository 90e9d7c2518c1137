"""Counters of a broker as one sum each."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from broker.core.open_txns import OpenTxns
from broker.core.partition import Role
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.traffic import SLICE, Traffic
from manual_clock import ManualClock


def partition(role: Role, *, is_open: bool) -> Any:
    """A partition with a transaction that is open, or has ended."""
    txns = OpenTxns()
    txns.begin(7, 0)
    if not is_open:
        txns.end(7, 1)
    producers = SimpleNamespace(txns=txns)
    return SimpleNamespace(partition=SimpleNamespace(role=role, producers=producers))


def test_topics_are_summed_and_open_transactions_count_where_they_are_led() -> None:
    counters = BrokerCounters()
    for number in range(SLICE + 1):
        topic = counters.topic(f"t{number}")
        topic.bytes_in, topic.bytes_out, topic.records_in, topic.fetches = 10, 20, 1, 3
    hosted = [(Role.LEADER, True), (Role.LEADER, False), (Role.FOLLOWER, True)]
    by_name = {("t", at): partition(role, is_open=one) for at, (role, one) in enumerate(hosted)}
    table = cast("Any", SimpleNamespace(by_name=by_name))
    found = asyncio.run(Traffic(counters, table, ManualClock()).read())
    assert (found.bytes_in, found.bytes_out) == (10 * (SLICE + 1), 20 * (SLICE + 1))
    assert (found.records_in, found.fetch_requests) == (SLICE + 1, 3 * (SLICE + 1))
    assert found.open_transaction_partitions == 1


def test_a_topic_that_is_no_longer_hosted_stays_in_the_sums() -> None:
    counters = BrokerCounters()
    counters.topic("kept").bytes_in = 3
    counters.topic("gone").bytes_in = 4
    counters.forget_topic("gone")
    counters.forget_topic("never hosted")
    assert set(counters.topics) == {"kept"}
    table = cast("Any", SimpleNamespace(by_name={}))
    assert asyncio.run(Traffic(counters, table, ManualClock()).read()).bytes_in == 7
