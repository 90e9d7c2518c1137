"""Settings that follow the metadata while the broker runs."""

import asyncio
import logging
from collections.abc import Callable

from tidemark.model.ids import InstantMs
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields

from broker.core.live_settings import LiveSettings, settings_in_force
from broker.shell.facts import BrokerFacts
from broker.shell.subscribers import SETTINGS

log = logging.getLogger(__name__)


class BrokerSettings:
    """Settings of one broker in force, with those who act on a change."""

    def __init__(self, facts: BrokerFacts, metadata: MetadataCache) -> None:
        self._facts = facts
        self.now: LiveSettings = settings_in_force(facts.config, {}, facts.broker_id)
        self._actors: list[Callable[[LiveSettings], None]] = []
        self._changed = asyncio.Event()
        metadata.subscribe(SETTINGS, Kind.BROKER_CONFIGS, self._configure)

    def follow(self, act: Callable[[LiveSettings], None]) -> None:
        """Call ``act`` with the settings in force, and again after each change."""
        self._actors.append(act)
        act(self.now)

    async def rest(
        self, pause_ms: Callable[[LiveSettings], float], since: InstantMs | None = None
    ) -> None:
        """Sleep until a pause is over that begins now, or began at ``since``; its length may change
        meanwhile.
        """
        clock = self._facts.clock
        began = clock.now_ms() if since is None else since
        while (left_ms := pause_ms(self.now) - (clock.now_ms() - began)) > 0:
            try:
                async with asyncio.timeout(left_ms / 1_000):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _configure(self, change: MetadataChange) -> None:
        facts = self._facts
        before = self.now
        self.now = settings_in_force(facts.config, change.image.broker_configs, facts.broker_id)
        if self.now == before:
            return
        log.info("settings changed", extra=fields(settings=str(self.now)))
        for act in self._actors:
            act(self.now)
        self._changed.set()
        self._changed = asyncio.Event()
