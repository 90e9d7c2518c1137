"""What share groups cost a broker: whole batches beside plain fetches, acknowledgements one by one
and in ranges, latency, and memory.
"""

import random
import select
import shutil
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Final

from bench.fetch import fetch_plan, figures
from bench.frames import batch_of
from bench.load import Plan
from bench.processes import floor_server, measure, rss_bytes
from bench.report import Row
from bench.share_cluster import (
    WINDOW_RECORDS,
    FastMember,
    ShareUnderTest,
    accepted,
    share_cluster,
)
from bench.share_floor import share_floor
from e2e.kafka_wire import batch
from e2e.share_wire import ACCEPT, RELEASE

BATCH_BYTES: Final = 1_000_000
RATIO_MAX: Final = 1.6
READERS: Final = 8
"""Members that read whole batches of one group, each with a partition of its own."""
BATCHES: Final = 4
"""Of a request that takes several. Those that it accepts and those that it acquires both fit into
the window of a share-partition.
"""
MEMBERS: Final = 32
"""Of one group, each with a partition of its own."""
RANGE: Final = 100
LATENCIES: Final = 500
SHARE_PARTITIONS: Final = 1_000
IN_FLIGHT: Final = 100_000
_GB: Final = 1e9


def bench_share(directory: Path, *, total: int, runs: int, where: str) -> list[Row]:
    """All figures, on a cluster of their own."""
    group = f"share groups, {where}"
    with share_cluster(directory) as under_test:
        grown = memory(under_test, group)  # first, while no memory is free
        rows = whole_batches(under_test, directory / "floor", total=total, runs=runs, group=group)
        rows += acknowledgements(under_test, group)
        rows.append(latency(under_test, group))
    return rows + grown


# -- whole batches


def records_of(keyed_batch: bytes) -> int:
    """Records of a batch, from its header."""
    return int.from_bytes(keyed_batch[57:61], "big")


def whole_batches(
    under_test: ShareUnderTest, floor_directory: Path, *, total: int, runs: int, group: str
) -> list[Row]:
    """CPU of the broker for each GB: plain fetches of 1 MB batches, and the same batches acquired
    and accepted, one or several a request; by one member, by several of one group, and in the
    order of keys. Behind those of one batch a request the floors, whose directory is
    ``floor_directory``.
    """
    rows = []
    floor_directory.mkdir()
    kinds = [(readers, batches, False) for batches in (1, BATCHES) for readers in (1, READERS)]
    kinds.append((1, 1, True))
    for readers, batches, keyed in kinds:
        whole = Whole(under_test, readers, batches, total, keyed=keyed)
        order = {"share_record_order": "key"} if keyed else {}
        whole.share_fetches(order)  # a warm-up
        plain, shared = [], []
        for _ in range(runs):  # in turns: a machine is not equally fast all the time
            plain.append(whole.plain_fetches())
            shared.append(whole.share_fetches(order))
        floor = {key: statistics.median(one[key] for one in plain) for key in plain[0]}
        ours = {key: statistics.median(one[key] for one in shared) for key in shared[0]}
        name = f"1 MB batches accepted whole, members: {readers}, a request: {batches}"
        made = Row(
            group,
            name + (", order by key" if keyed else ""),
            mb_s=ours["mb_s"],
            cpu_s_per_gb=ours["cpu_s_per_gb"],
        )
        made.floor_cpu_s_per_gb = floor["cpu_s_per_gb"]
        made.ratio = ours["cpu_s_per_gb"] / max(floor["cpu_s_per_gb"], 1e-9)
        made.extra = {
            "plain_mb_s": floor["mb_s"],
            "coordinator_cpu_s_per_gb": ours["coordinator_cpu_s_per_gb"],
            "requests_a_write": ours["requests_a_write"],
        }
        rows.append(made)
        if not keyed:
            made.bound, made.held = f"ratio <={RATIO_MAX}", made.ratio <= RATIO_MAX
        if not keyed and batches == 1:
            shutil.copyfile(under_test.segments(whole.topic)[0], floor_directory / "floor.log")
            gathered = max(1, round(ours["requests_a_write"]))
            rows += floors(floor_directory, readers, gathered, total=total, runs=runs, group=group)
        under_test.delete_topic(whole.topic)
    return rows


def floors(
    directory: Path, readers: int, gathered: int, *, total: int, runs: int, group: str
) -> list[Row]:
    """What share fetches cost at least beside bare sendfile: with a call of gRPC for each write,
    and with one stream for all of them.
    """

    def one(server: tuple[int, int]) -> dict[str, float]:
        port, pid = server
        return figures(batch_plan(port, "floor", total, readers), pid)

    share = partial(share_floor, directory, BATCH_BYTES, gathered=gathered)
    with (
        floor_server("fetch", directory, BATCH_BYTES) as bare,
        share(keeps_stream=False) as calls,
        share(keeps_stream=True) as stream,
    ):
        servers = (bare, calls, stream)
        samples = [list(map(one, servers)) for _ in range(runs)]
    medians = [
        {key: statistics.median(sample[key] for sample in of_one) for key in of_one[0]}
        for of_one in zip(*samples, strict=True)
    ]
    rows = []
    for ours, what in zip(medians[1:], ("a call a write", "a kept stream"), strict=True):
        made = Row(group, f"floor of that, {what}", mb_s=ours["mb_s"])
        made.cpu_s_per_gb, made.floor_cpu_s_per_gb = (
            of_one["cpu_s_per_gb"] for of_one in (ours, medians[0])
        )
        made.ratio = made.cpu_s_per_gb / max(made.floor_cpu_s_per_gb, 1e-9)
        made.extra = {"requests_a_write": float(gathered)}
        rows.append(made)
    return rows


def batch_plan(port: int, topic: str, total: int, readers: int, batches: int = 1) -> Plan:
    """Readers that fetch so many batches a request, each of a partition of its own."""
    plan = fetch_plan(port, topic, batches * BATCH_BYTES, total, readers)
    plan.batch_bytes = BATCH_BYTES
    plan.partitions = readers
    return plan


class Whole:
    """A topic of 1 MB batches, with a partition for each reader."""

    def __init__(
        self, under_test: ShareUnderTest, readers: int, batches: int, total: int, *, keyed: bool
    ) -> None:
        self.topic = f"whole-{readers}-{batches}-{keyed}"
        self._under_test = under_test
        self._readers = readers
        self._batches = batches
        self._count = total // BATCH_BYTES // readers // batches
        """Requests of a reader."""
        self._total = self._count * readers * batches * BATCH_BYTES
        self._batch_records = records_of(batch_of(BATCH_BYTES, keyed=keyed))
        self._records = self._batch_records * batches
        """Of a request."""
        under_test.create_topic(self.topic, partitions=readers)
        plan = Plan("produce", under_test.port, self.topic, BATCH_BYTES, self._total, keyed=keyed)
        plan.connections = plan.partitions = readers
        measure(plan, under_test.pid)

    def plain_fetches(self) -> dict[str, float]:
        """Of readers that ask for as many batches a request as the members."""
        port = self._under_test.port
        plan = batch_plan(port, self.topic, self._total, self._readers, self._batches)
        plan.batch_records = self._batch_records
        return figures(plan, self._under_test.pid)

    def share_fetches(self, order: dict[str, str]) -> dict[str, float]:
        """Of members of one group: each request accepts the batches before, and acquires more."""
        under_test, records = self._under_test, self._records
        group = under_test.group(self.topic, **order)
        members = [under_test.reader(group, self.topic) for _ in range(self._readers)]
        for number, member in enumerate(members):
            member.fetch_bytes(number, records=records)
        writes = under_test.writes()
        broker_cpu, coordinator_cpu = under_test.cpu()
        began = time.perf_counter()
        size = self._accept_and_fetch(members)
        seconds = time.perf_counter() - began
        broker_after, coordinator_after = under_test.cpu()
        writes = under_test.writes() - writes
        for member in members:
            member.wire.socket.close()
        asked = (self._count - 1) * self._readers * self._batches
        assert size >= asked * BATCH_BYTES, "each brings all that it asked for"
        return {
            "mb_s": size / seconds / 1e6,
            "cpu_s_per_gb": (broker_after - broker_cpu) / (size / _GB),
            "coordinator_cpu_s_per_gb": (coordinator_after - coordinator_cpu) / (size / _GB),
            "requests_a_write": (self._count - 1) * self._readers / writes,
        }

    def _accept_and_fetch(self, members: list[FastMember]) -> int:
        """Each member has one request in flight, until it has read its partition; bytes of all."""
        numbers = {one.wire.socket.fileno(): number for number, one in enumerate(members)}
        done = [0] * len(members)
        poller = select.epoll()

        def send(number: int) -> None:
            first = done[number] * self._records
            batch = accepted(first, first + self._records - 1)
            members[number].begin_fetch(number, records=self._records, accepts=(batch,))

        for descriptor, number in numbers.items():
            poller.register(descriptor, select.EPOLLIN)
            send(number)
        size = 0
        while min(done) < self._count - 1:
            for descriptor, _ in poller.poll():
                number = numbers[descriptor]
                size += members[number].end_fetch()
                done[number] += 1
                if done[number] < self._count - 1:
                    send(number)
        return size


# -- acknowledgements


def acknowledgements(under_test: ShareUnderTest, group: str) -> list[Row]:
    """Records accepted in requests of one record each, and of a hundred with a type each."""
    topic = "acks"
    under_test.create_topic(topic, partitions=MEMBERS)
    rows = []
    for width in (1, RANGE):
        share_group = under_test.group(topic)
        members = [
            loaded_member(under_test, share_group, topic, number) for number in range(MEMBERS)
        ]
        requests = min(200, WINDOW_RECORDS // width)
        broker_cpu, coordinator_cpu = under_test.cpu()
        began = time.perf_counter()
        latencies = accept_all(members, width, requests)
        seconds = time.perf_counter() - began
        broker_after, coordinator_after = under_test.cpu()
        count = MEMBERS * requests
        what = "one record" if width == 1 else f"{width} records, a type each"
        made = Row(group, f"acknowledgements of {what}, {MEMBERS} members")
        made.requests_s = count / seconds
        made.p50_ms, made.p99_ms = percentiles(latencies)
        made.extra = {
            "records_s": count * width / seconds,
            "broker_us_a_request": 1e6 * (broker_after - broker_cpu) / count,
            "coordinator_us_a_request": 1e6 * (coordinator_after - coordinator_cpu) / count,
        }
        rows.append(made)
        for member in members:
            member.wire.socket.close()
    return rows


def loaded_member(
    under_test: ShareUnderTest, share_group: str, topic: str, partition: int
) -> FastMember:
    """A member that holds the whole window of a partition."""
    member = under_test.reader(share_group, topic)
    values = [b"v"] * 1_000
    if not member.wire.offset(topic, partition, -1).offset:
        for _ in range(WINDOW_RECORDS // len(values)):
            member.wire.produce(topic, batch(*values), partition=partition)
    member.fetch_bytes(partition, records=WINDOW_RECORDS)
    return member


def accept_all(members: list[FastMember], width: int, requests: int) -> list[float]:
    """Each member has one request in flight; the latencies in ms."""
    by_socket = {one.wire.socket.fileno(): (number, one) for number, one in enumerate(members)}
    poller = select.epoll()
    sent_at: dict[int, float] = {}
    done = dict.fromkeys(by_socket, 0)
    types = (ACCEPT,) if width == 1 else tuple(ACCEPT + at % 2 for at in range(width))

    def send(descriptor: int) -> None:
        number, member = by_socket[descriptor]
        first = done[descriptor] * width
        sent_at[descriptor] = time.perf_counter()
        member.begin_accept((first, first + width - 1, *types), partition=number)

    for descriptor in by_socket:
        poller.register(descriptor, select.EPOLLIN)
        send(descriptor)
    latencies: list[float] = []
    while len(latencies) < requests * len(members):
        for descriptor, _ in poller.poll():
            by_socket[descriptor][1].end_accept()
            latencies.append(1e3 * (time.perf_counter() - sent_at[descriptor]))
            done[descriptor] += 1
            if done[descriptor] < requests:
                send(descriptor)
    return latencies


def percentiles(latencies: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    ranked = sorted(latencies)
    return ranked[len(ranked) // 2], ranked[len(ranked) * 99 // 100]


# -- latency


def latency(under_test: ShareUnderTest, group: str) -> Row:
    """From a produce request to the answer of the fetch that waited for it."""
    topic = "latency"
    under_test.create_topic(topic)
    member = under_test.reader(under_test.group(topic), topic)
    member.settle()
    writer = under_test.reader(under_test.group(topic), topic)
    latencies = []
    for number in range(LATENCIES):
        began = time.perf_counter()
        writer.wire.produce(topic, batch(b"%d" % number))
        member.fetch_bytes(0)
        latencies.append(1e3 * (time.perf_counter() - began))
        member.accept(accepted(number, number))
    made = Row(group, "produce to acquired, one record")
    made.p50_ms, made.p99_ms = percentiles(latencies)
    return made


# -- memory


def memory(under_test: ShareUnderTest, group: str) -> list[Row]:
    """Of share-partitions with an empty window, and of records acknowledged at random."""
    topic = "many"
    under_test.create_topic(topic, partitions=SHARE_PARTITIONS)
    sharing = under_test.group(topic)
    member = under_test.reader(sharing, topic)
    before = rss_bytes(under_test.pid)
    member.fetch_answer(*range(SHARE_PARTITIONS), wait_ms=0)
    under_test.wait_until_loaded(sharing, member.topic_id, SHARE_PARTITIONS)
    member.fetch_answer(wait_ms=0)
    grown = rss_bytes(under_test.pid) - before
    first = Row(group, f"{SHARE_PARTITIONS:,} share-partitions without records")
    first.extra = {"bytes_each": grown / SHARE_PARTITIONS}
    member.wire.socket.close()
    return [first, in_flight_memory(under_test, group)]


def in_flight_memory(under_test: ShareUnderTest, group: str) -> Row:
    """Every record of full windows has a state unlike its neighbours'."""
    topic, partitions = "random", IN_FLIGHT // WINDOW_RECORDS
    under_test.create_topic(topic, partitions=partitions)
    share_group = under_test.group(topic)
    members = [
        loaded_member(under_test, share_group, topic, number) for number in range(partitions)
    ]
    before = rss_bytes(under_test.pid)
    dice = random.Random(7)
    began = time.perf_counter()
    for number, member in enumerate(members):
        offsets = dice.sample(range(1, WINDOW_RECORDS), WINDOW_RECORDS // 2)
        for at in range(0, len(offsets), RANGE):
            batches = [
                (one, one, dice.choice((ACCEPT, RELEASE)))
                for one in sorted(offsets[at : at + RANGE])
            ]
            member.accept(*batches, partition=number)
    seconds = time.perf_counter() - began
    grown = rss_bytes(under_test.pid) - before
    made = Row(group, f"{IN_FLIGHT:,} records in flight, half acknowledged at random")
    made.extra = {"bytes_a_record": grown / IN_FLIGHT, "records_s": IN_FLIGHT / 2 / seconds}
    for member in members:
        member.wire.socket.close()
    return made
