"""Start of a broker until its logs are recovered, and the reasons that probes are given."""

import asyncio
import logging
from typing import Final

from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig
from broker.shell.broker_server import BrokerServer
from broker.shell.start import OpenedDirectories, open_directories
from broker.storage.recovery_progress import RecoveryProgress

SAY_EVERY_S: Final = 10.0
log = logging.getLogger(__name__)


class Health:
    """Reasons why a broker is not started, or not ready."""

    def __init__(self, config: BrokerConfig) -> None:
        self.progress = RecoveryProgress(config.log_dirs)
        self.server: BrokerServer | None = None
        """Set once the logs are recovered."""

    def not_started(self) -> str | None:
        """Return what the start still does; None when the logs are recovered."""
        return self.progress.words() if self.server is None else None

    def not_ready(self) -> str | None:
        """Return why clients are not served yet; None when they are."""
        return self.progress.words() if self.server is None else self.server.not_ready()

    async def refresh(self) -> None:
        """Compute what metrics show of groups."""
        if self.server is not None:
            await self.server.groups.lag.refresh()


async def recovered(
    config: BrokerConfig,
    open_files_max: int,
    progress: RecoveryProgress,
    *,
    say_every_s: float = SAY_EVERY_S,
) -> OpenedDirectories:
    """Open the log directories in a thread, and log every ``say_every_s`` seconds what is left.
    Raises as ``open_directories`` does.
    """
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, open_directories, config, open_files_max, progress)
    while not (await asyncio.wait((opening,), timeout=say_every_s))[0]:
        remaining = {path: one.remaining for path, one in progress.by_path.items()}
        log.info(progress.words(), extra=fields(remaining_logs=remaining))
    return await opening
