"""One ZooKeeper for the clusters of a test process: each lives below a chroot of its own, as in a
ZooKeeper that a company runs for many. A server of their own would cost most of them more CPU
than they cost it.
"""

import atexit
import contextlib
import functools
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from e2e.zookeeper import RunningZookeeper, running_zookeeper
from tidemark.cli.dev.layout import Layout, Member


@dataclass(frozen=True, slots=True)
class ChrootLayout(Layout):
    """A cluster whose ZooKeeper is not one of its processes. ``connect`` is its address, with the
    cluster's chroot.
    """

    connect: str = ""

    @property
    def zookeeper_connect(self) -> str:
        """Address of ZooKeeper with the cluster's chroot."""
        return self.connect

    def members(self) -> tuple[Member, ...]:
        """Every process but ZooKeeper."""
        return tuple(one for one in Layout.members(self) if one.kind != "zookeeper")


@functools.cache
def shared_zookeeper() -> RunningZookeeper:
    """The server. It starts with the first cluster and ends with this process."""
    ending = contextlib.ExitStack()
    atexit.register(ending.close)
    directory = ending.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-zookeeper-"))
    return ending.enter_context(running_zookeeper(Path(directory)))


def layout_on_free_ports(
    directory: Path,
    *,
    brokers: int = 1,
    controllers: int = 1,
    txn_coordinators: int = 0,
    share_coordinators: int = 0,
    has_prometheus: bool = False,
) -> ChrootLayout:
    """A cluster that uses the shared ZooKeeper, with a block of free ports."""
    own = Layout.on_free_ports(
        directory,
        brokers=brokers,
        controllers=controllers,
        txn_coordinators=txn_coordinators,
        share_coordinators=share_coordinators,
        has_prometheus=has_prometheus,
    )
    chroot = f"/tidemark-{uuid.uuid4().hex}"
    return ChrootLayout(own.directory, own.shape, f"{shared_zookeeper().connect}{chroot}")
