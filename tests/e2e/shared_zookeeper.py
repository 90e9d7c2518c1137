"""One ZooKeeper for the clusters of a test process: each lives below a chroot of its own, as in a
ZooKeeper that a company runs for many. A server of their own would cost most of them more CPU
than they cost it.
"""

import atexit
import contextlib
import functools
import shutil
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
    directory = Path(tempfile.mkdtemp(prefix="tidemark-zookeeper-"))
    ending.callback(shutil.rmtree, directory)
    return ending.enter_context(running_zookeeper(directory))


def with_shared_zookeeper(layout: Layout) -> ChrootLayout:
    """The same cluster, without a ZooKeeper of its own."""
    chroot = f"/tidemark-{uuid.uuid4().hex}"
    return ChrootLayout(layout.directory, layout.shape, f"{shared_zookeeper().connect}{chroot}")
