"""ImageSource: the cluster's metadata on every controller.

The active controller has it in its machine. A standby follows the feed of the active one, as
brokers do, and is no broker there: it counts for no lease and no decision.
"""

import asyncio
from collections.abc import Callable

from tidemark.model.metadata import ClusterImage
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_follower import MetadataFollower
from tidemark.runtime.tls import ChannelTls
from tidemark.runtime.zk_session import ZkSession

from controller.shell.node import ControllerNode


class ImageSource:
    """Latest metadata of one controller, active or not."""

    def __init__(
        self, node: ControllerNode, session: ZkSession, tls: ChannelTls | None = None
    ) -> None:
        """``tls`` is that of gRPC channels; None: plain text."""
        self._node = node
        self._tls = tls
        self._session = session
        self._followed = ClusterImage()
        self._follower: MetadataFollower | None = None

    def __call__(self) -> ClusterImage:
        """Return the latest image; the empty one before there is any."""
        own = self._node.image
        if own is not None:
            return own
        return self._followed if self._follower is None else self._follower.image

    async def until(self, shows: Callable[[ClusterImage], bool], wait_s: float) -> None:
        """Wait until the image shows something, for ``wait_s`` at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while (left_s := deadline - loop.time()) > 0 and not shows(self()):
            follower = self._follower
            if follower is None:
                return
            await follower.metadata.wait_newer_or(follower.image.position, left_s)

    async def run(self) -> None:
        """Follow the active controller while this one is not active, until cancelled."""
        while True:
            await self._node.standby.wait()
            await self._follow()

    async def _follow(self) -> None:
        """Follow until this controller becomes active; its own image is then the later one."""
        client = ControllerClient(self._session, tls=self._tls)
        self._follower = MetadataFollower(
            client, MetadataCache(), subscriber=f"controller-{self._node.controller_id}"
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follower.run(), name="follow-metadata")
                await self._node.active.wait()
                following.cancel()
        finally:
            self._followed = ClusterImage()
            self._follower = None
            await client.close()
