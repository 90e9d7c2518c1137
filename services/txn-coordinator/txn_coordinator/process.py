"""Process of one txn-coordinator replica."""

import asyncio
import sys
from typing import Final

from tidemark.model.metadata import TXN
from tidemark.runtime.coordinator.service import CoordinatorParts, serve_coordinator
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.service import run_process

from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.server import make_server

_PARTS: Final = CoordinatorParts(SERVICE, TXN, TxnCoordinatorNode, make_server)


async def serve(config: TxnCoordinatorConfig, stop: asyncio.Event) -> None:
    """Run one replica until ``stop`` is set; then answer the requests under way, and stop."""
    await serve_coordinator(config, stop, _PARTS)


def main() -> None:
    """Run the process, and exit with its code."""
    sys.exit(run_process(serve, TxnCoordinatorConfig, service=SERVICE, loop_factory=new_event_loop))
