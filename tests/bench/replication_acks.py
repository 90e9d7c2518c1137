"""What an acknowledgement takes at 1,000 small requests a second: acks=all beside acks=1, and where
the time goes.
"""

import os
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.replication import SMALL_BYTES, paced_of, settle, started
from bench.replication_catch_up import percentile
from bench.replication_cluster import FOLLOWERS, LEADER, ReplicatedCluster, replicated
from bench.replication_load import ACKS_ALL, ReplicatedPlan
from bench.replication_trace import DIRECTORY_KEY, Note, TracedCluster, read_notes
from bench.report import Row, median_of
from tidemark.runtime.build import is_compiled

RATE_S: Final = 1_000
SECONDS: Final = 4
_TRACED_SECONDS: Final = 4
STAGES: Final = ("sent", "taken", "written", "heard", "committed")


def bench_acks(cluster: ReplicatedCluster, *, runs: int, where: str) -> list[Row]:
    """Both, in turns, on one partition."""
    rows = []
    found: dict[int, dict[str, float]] = {}
    for acks in (1, ACKS_ALL):
        found[acks] = median_of(runs, _latencies, cluster, acks)
    for acks, name in ((1, "acks=1"), (ACKS_ALL, "acks=all")):
        one = found[acks]
        row = Row(_group(where), name, requests_s=RATE_S, p50_ms=one["p50"], p99_ms=one["p99"])
        row.p999_ms, row.ratio = one["p999"], one["p50"] / found[1]["p50"]
        row.extra = {
            "leader_us_per_request": one["leader"],
            "follower_us_per_request": one["follower"],
            "fetches_per_request": one["fetches"],
            "load_late_ms": one["late"],
        }
        rows.append(row)
    return rows


def _group(where: str) -> str:
    return f"acknowledgement, {SMALL_BYTES} B x {RATE_S:,}/s, 3 replicas, {where}"


_numbers = iter(range(1_000_000))


def _latencies(cluster: ReplicatedCluster, acks: int) -> dict[str, float]:
    topic = f"acks-{next(_numbers)}"
    cluster.create_topic(topic)
    settle(cluster, topic, 1)
    try:
        plan = _plan(cluster, topic, acks, SECONDS)
        fetched, before = cluster.fetches(LEADER), cluster.cpu()
        with started(plan) as load:
            paced = paced_of(load)
        spent = {
            one: 1e6 * (cpu - before[one]) / plan.requests for one, cpu in cluster.cpu().items()
        }
        fetches = (cluster.fetches(LEADER) - fetched) / plan.requests
    finally:
        cluster.delete_topic(topic)
    took = paced.took_ms[RATE_S // 2 :]  # without the first half second
    return {
        "p50": statistics.median(took),
        "p99": percentile(took, 0.99),
        "p999": percentile(took, 0.999),
        "late": paced.late_ms_max,
        "leader": spent[LEADER],
        "fetches": fetches,
        "follower": statistics.mean(spent[one] for one in FOLLOWERS),
    }


def _plan(cluster: ReplicatedCluster, topic: str, acks: int, seconds: int) -> ReplicatedPlan:
    return ReplicatedPlan(
        cluster.port(LEADER), topic, SMALL_BYTES, 1, RATE_S * seconds, acks=acks, rate_s=RATE_S
    )


def bench_ack_stages(directory: Path, where: str) -> list[Row]:
    """Where the time of acks=all goes, from a cluster whose brokers note it. No rows with the
    compiled build, in which functions cannot be replaced.
    """
    if is_compiled():
        return []
    notes_at = directory / "notes"
    notes_at.mkdir(parents=True)
    os.environ[DIRECTORY_KEY] = str(notes_at)
    try:
        with replicated(directory / "traced", of=TracedCluster) as cluster:
            cluster.create_topic("traced")
            settle(cluster, "traced", 1)
            with started(_plan(cluster, "traced", ACKS_ALL, _TRACED_SECONDS)) as load:
                paced = paced_of(load)
    finally:
        del os.environ[DIRECTORY_KEY]
    total = statistics.median(paced.took_ms)
    stages = stages_of(read_notes(notes_at))
    rows = [_stage_row(where, name, values) for name, values in stages.items()]
    seen = statistics.median(stages["appended to committed"])
    rest = Row(_group(where), "stage: to the leader, and back to the client (what is left)")
    rest.p50_ms = total - seen
    return [*rows, rest]


def _stage_row(where: str, name: str, values: Sequence[float]) -> Row:
    row = Row(_group(where), f"stage: {name}")
    row.p50_ms, row.p99_ms = statistics.median(values), percentile(list(values), 0.99)
    return row


def stages_of(notes: Sequence[Note]) -> dict[str, list[float]]:
    """How long each write took from one point to the next, in ms, by stage.

    A follower's points are those of the follower that came last: the high watermark is the
    minimum, so that the last one decides.
    """
    passed = _when_passed(notes)
    stages: dict[str, list[float]] = defaultdict(list)
    for note in notes:
        if note.point != "appended":
            continue
        times = [note.at_s, *(passed(point, note.offset) for point in STAGES)]
        if None in times:
            continue
        known = [at for at in times if at is not None]
        for before, (first, second) in enumerate(zip(("appended", *STAGES), STAGES, strict=False)):
            stages[f"{first} to {second}"].append(1e3 * (known[before + 1] - known[before]))
        stages["appended to committed"].append(1e3 * (known[-1] - known[0]))
    return stages


def _when_passed(notes: Sequence[Note]) -> Callable[[str, int], float | None]:
    """When a point was passed up to an offset: by the last follower, where it is a follower's."""
    known: dict[tuple[str, int], tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    for point, _, offset, replica, at in notes:
        offsets, times = known[point, replica]
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
            times.append(at)

    def passed(point: str, end: int) -> float | None:
        last = None
        for (name, _), (offsets, times) in known.items():
            if name != point:
                continue
            place = bisect_left(offsets, end)
            if place == len(offsets):
                return None
            last = times[place] if last is None else max(last, times[place])
        return last

    return passed
