"""Process of one share-coordinator replica."""

import asyncio
import sys
from typing import Final

from tidemark.model.metadata import SHARE
from tidemark.runtime.coordinator.service import CoordinatorParts, serve_coordinator
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.service import run_process

from share_coordinator.config import SERVICE, ShareCoordinatorConfig
from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.server import make_server

_PARTS: Final = CoordinatorParts(SERVICE, SHARE, ShareCoordinatorNode, make_server)


async def serve(config: ShareCoordinatorConfig, stop: asyncio.Event) -> None:
    """Run one replica until ``stop`` is set; then answer the requests under way, and stop."""
    await serve_coordinator(config, stop, _PARTS)


def main() -> None:
    """Run the process, and exit with its code."""
    sys.exit(
        run_process(serve, ShareCoordinatorConfig, service=SERVICE, loop_factory=new_event_loop)
    )
