"""Controlled shutdown: hand over what this broker leads before it stops.

Meanwhile it serves on and follows the feed: the controller moves a leader only once the old one has
acknowledged that it is none any more.
"""

import asyncio
import logging
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import PartitionImage
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.telemetry import fields

from broker.shell.node import BrokerNode

log = logging.getLogger(__name__)

ASK_AGAIN_MS: Final = 200
CALL_TIMEOUT_MS: Final = 3_000
LONE_TIMEOUT_MS: Final = 1_000
"""How long the controller is asked at most when nothing could be handed over anyway."""


async def hand_over(node: BrokerNode, *, deadline_ms: int) -> None:
    """Ask the controller until nothing is led here, nothing of it can be led elsewhere, or
    ``deadline_ms`` have passed.
    """
    clock = node.clock
    deadline = InstantMs(clock.now_ms() + deadline_ms)
    if node.registration.broker_epoch < 0:
        return
    asked_since = clock.now_ms()
    while (left_ms := deadline - clock.now_ms()) > 0:
        movable = movable_count(node)
        waited_ms = clock.now_ms() - asked_since
        if not movable:
            left_ms = min(left_ms, LONE_TIMEOUT_MS - waited_ms)
            if left_ms <= 0:
                break
        led = await _ask(node, min(left_ms, CALL_TIMEOUT_MS))
        if led == 0 or (led is not None and not movable_count(node)):
            break
        await asyncio.sleep(min(left_ms, ASK_AGAIN_MS) / 1_000)
    log.info(
        "controlled shutdown",
        extra=fields(led=led_count(node), took_ms=clock.now_ms() - asked_since),
    )


async def _ask(node: BrokerNode, timeout_ms: int) -> int | None:
    """How many partitions the controller has us lead still; None: it did not say."""
    deadline = InstantMs(node.clock.now_ms() + timeout_ms)
    try:
        answer = await node.controller.controlled_shutdown(
            node.broker_id, BrokerEpoch(node.registration.broker_epoch), timeout_ms / 1_000
        )
    except TidemarkError as failure:
        log.warning("controlled shutdown not heard", extra=fields(reason=failure.message))
        return None
    if answer.error_code != ErrorCode.NONE:
        log.warning("controlled shutdown refused", extra=fields(reason=answer.error_message))
        return None
    await node.metadata.wait_for(read_position(answer.position), node.clock.seconds_until(deadline))
    return int(answer.partitions_led)


def led_count(node: BrokerNode) -> int:
    """Partitions that this broker leads by its image."""
    return len(_led(node))


def movable_count(node: BrokerNode) -> int:
    """Those of them that another broker could lead: one that is in sync, and lives on."""
    others = {broker for broker in node.live.epochs if broker != node.broker_id}
    return sum(1 for state in _led(node) if not others.isdisjoint(state.isr))


def _led(node: BrokerNode) -> list[PartitionImage]:
    return [
        state
        for topic in node.image.topics.values()
        for state in topic.partitions
        if state.leader == node.broker_id
    ]
