"""The overview: is the cluster well, what is wrong, what it does, and what changed lately."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from controller.admin import brokers, cluster, operations
from controller.admin.errors import AdminError
from controller.admin.health import health
from controller.admin.load import Traffic, group_lags, traffic
from controller.admin.operation_steps import Operation
from controller.admin.traffic_history import POINTS_MAX
from controller.console import charts
from controller.console.visit import Visit

EVENTS_SHOWN: Final = 8
OPERATIONS_SHOWN: Final = 3
_GAP: Final = 2.5
"""Intervals between two measurements from which on the line of a chart is broken."""


class Chart(NamedTuple):
    """Bytes in and out of the recent past."""

    bytes_in: str
    """Path of an SVG."""
    bytes_out: str
    top: float
    """Largest value, in bytes a second."""
    span_ms: int


async def show(visit: Visit) -> Response:
    """Show the overview. Figures that brokers have come later, as parts."""
    return visit.page(
        "overview.html",
        cluster=await cluster.cluster(visit.admin),
        coordinators=visit.image.coordinators,
    )


async def problems(visit: Visit) -> Response:
    """Show the problems, as a part of the overview."""
    return visit.page("parts/problems.html", health=await health(visit.admin))


async def load(visit: Visit) -> Response:
    """Show brokers with their disks and their throughput, as a part of the overview."""
    listed = await brokers.list_brokers(visit.admin)
    disks = await brokers.all_log_dirs(visit.admin)
    rates = {one.broker_id: one for one in traffic(visit.admin).brokers}
    return visit.page("parts/broker_load.html", brokers=listed, disks=disks, rates=rates)


async def throughput(visit: Visit) -> Response:
    """Show what the brokers take and send, as a part of the overview."""
    found = traffic(visit.admin)
    missing = [one for one in found.brokers if one.problem]
    return visit.page("parts/traffic.html", traffic=found, missing=missing, chart=chart_of(found))


def chart_of(found: Traffic) -> Chart | None:
    """Return the chart of the recent past; None before there are two points."""
    if len(found.past) < 2:
        return None
    top = max(max(one.rates.bytes_in, one.rates.bytes_out) for one in found.past)
    end_ms, span_ms = found.past[-1].at_ms, found.interval_ms * POINTS_MAX

    def line(samples: Sequence[charts.Sample]) -> str:
        gap_ms = int(found.interval_ms * _GAP)
        return charts.line(samples, end_ms=end_ms, span_ms=span_ms, gap_ms=gap_ms, top=top)

    return Chart(
        line([(one.at_ms, one.rates.bytes_in) for one in found.past]),
        line([(one.at_ms, one.rates.bytes_out) for one in found.past]),
        top,
        span_ms,
    )


async def lag(visit: Visit) -> Response:
    """Show the groups with the largest lag, as a part of the overview."""
    return visit.page("parts/lag.html", lag=await group_lags(visit.admin))


async def changes(visit: Visit) -> Response:
    """Show the latest events and operations, as a part of the overview."""
    events = visit.admin.events.after(0)[-EVENTS_SHOWN:]
    problem, latest = "", list[Operation]()
    try:
        latest = (await operations.list_operations(visit.admin))[:OPERATIONS_SHOWN]
    except AdminError as error:
        problem = error.message
    now_ms = visit.admin.shared.clock.wall_ms()
    return visit.page(
        "parts/changes.html", events=events[::-1], operations=latest, problem=problem, now_ms=now_ms
    )
