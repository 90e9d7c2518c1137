"""The overview: is the cluster well, what is wrong, and what it consists of."""

from starlette.responses import Response

from controller.admin import brokers, cluster
from controller.admin.health import health
from controller.console.visit import Visit


async def show(visit: Visit) -> Response:
    """Show the overview. Figures that brokers have come later, as a part."""
    return visit.page(
        "overview.html",
        cluster=await cluster.cluster(visit.admin),
        coordinators=visit.image.coordinators,
    )


async def problems(visit: Visit) -> Response:
    """Show the problems, as a part of the overview."""
    return visit.page("parts/problems.html", health=await health(visit.admin))


async def load(visit: Visit) -> Response:
    """Show brokers with their disks, as a part of the overview."""
    listed = await brokers.list_brokers(visit.admin)
    disks = await brokers.all_log_dirs(visit.admin)
    return visit.page("parts/broker_load.html", brokers=listed, disks=disks)
