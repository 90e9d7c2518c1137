"""Controlled shutdown: hand over what this broker leads before it stops.

Meanwhile it serves and follows the feed: the controller moves a leader only once the old one has
acknowledged that it no longer leads.
"""

import asyncio
import logging
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import PartitionImage
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.telemetry import fields

from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.cluster.registration import Registration

log = logging.getLogger(__name__)

ASK_AGAIN_MS: Final = 200
CALL_TIMEOUT_MS: Final = 3_000
LONE_TIMEOUT_MS: Final = 1_000
"""Longest time for which the controller is asked if nothing could be handed over anyway."""


class HandOver:
    """Hands over what one broker leads."""

    def __init__(
        self,
        registration: Registration,
        controller: ControllerClient,
        clock: Clock,
        *,
        metadata: MetadataCache,
        live: LiveBrokers,
    ) -> None:
        self._registration = registration
        self._controller = controller
        self._clock = clock
        self._metadata = metadata
        self._live = live

    async def run(self, *, deadline_ms: int) -> None:
        """Ask the controller until nothing is led here, nothing of it can be led elsewhere, or
        ``deadline_ms`` have passed.
        """
        clock = self._clock
        deadline = InstantMs(clock.now_ms() + deadline_ms)
        if self._registration.broker_epoch < 0:
            return
        asked_since = clock.now_ms()
        while (left_ms := deadline - clock.now_ms()) > 0:
            movable = self.movable_count()
            waited_ms = clock.now_ms() - asked_since
            if not movable:
                left_ms = min(left_ms, LONE_TIMEOUT_MS - waited_ms)
                if left_ms <= 0:
                    break
            led = await self._ask(min(left_ms, CALL_TIMEOUT_MS))
            if led == 0 or (led is not None and not self.movable_count()):
                break
            await asyncio.sleep(min(left_ms, ASK_AGAIN_MS) / 1_000)
        log.info(
            "controlled shutdown",
            extra=fields(led=self.led_count(), took_ms=clock.now_ms() - asked_since),
        )

    async def _ask(self, timeout_ms: int) -> int | None:
        """Return how many partitions this broker still leads according to the controller; None if
        it did not answer.
        """
        registration = self._registration
        deadline = InstantMs(self._clock.now_ms() + timeout_ms)
        try:
            answer = await self._controller.controlled_shutdown(
                registration.broker_id, BrokerEpoch(registration.broker_epoch), timeout_ms / 1_000
            )
        except TidemarkError as failure:
            log.warning("controlled shutdown not answered", extra=fields(reason=failure.message))
            return None
        if answer.error_code != ErrorCode.NONE:
            log.warning("controlled shutdown refused", extra=fields(reason=answer.error_message))
            return None
        wait_s = self._clock.seconds_until(deadline)
        await self._metadata.wait_for(read_position(answer.position), wait_s)
        return int(answer.partitions_led)

    def led_count(self) -> int:
        """Return how many partitions this broker leads by its image."""
        return len(self._led())

    def movable_count(self) -> int:
        """Return how many of them another broker could lead: one that is in sync and does not
        stop.
        """
        others = {broker for broker in self._live.epochs if broker != self._registration.broker_id}
        return sum(1 for state in self._led() if not others.isdisjoint(state.isr))

    def _led(self) -> list[PartitionImage]:
        return [
            state
            for topic in self._metadata.image.topics.values()
            for state in topic.partitions
            if state.leader == self._registration.broker_id
        ]
