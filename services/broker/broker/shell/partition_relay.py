"""Changes of partitions that the controller decides: forwarded, answered once this broker's feed
shows them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import Message
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import InstantMs
from tidemark.runtime.metadata_wire import read_position

from broker.shell.node import BrokerNode
from broker.shell.relay import RELAY_TIMEOUT_MS_MAX, TRIGGER_TIMEOUT_MS


class PartitionAnswer(NamedTuple):
    """What became of one partition."""

    topic: str
    partition: int
    error_code: ErrorCode
    message: str | None


class PartitionsRelayed(NamedTuple):
    """The request as a whole, and each partition that the controller names."""

    error_code: ErrorCode
    message: str | None
    partitions: tuple[PartitionAnswer, ...]


async def relay_partitions(
    node: BrokerNode, method: str, message: Message, timeout_ms: int
) -> PartitionsRelayed:
    """Ask the active controller. A change that this broker does not see in time goes on all the
    same.
    """
    wanted_ms = min(timeout_ms if timeout_ms > 0 else TRIGGER_TIMEOUT_MS, RELAY_TIMEOUT_MS_MAX)
    deadline = InstantMs(node.clock.now_ms() + wanted_ms)
    try:
        response: Any = await node.controller.call(method, message, wanted_ms / 1_000)
    except TidemarkError as failure:
        return PartitionsRelayed(failure.code, failure.message, ())
    if response.error_code:
        return PartitionsRelayed(ErrorCode(response.error_code), None, ())
    found = tuple(
        PartitionAnswer(
            one.topic, one.partition, ErrorCode(one.error_code), one.error_message or None
        )
        for one in response.partitions
    )
    if not await node.metadata.wait_for(
        read_position(response.position), node.clock.seconds_until(deadline)
    ):
        words = "the change is made, but this broker has not seen it within the timeout"
        return PartitionsRelayed(ErrorCode.REQUEST_TIMED_OUT, words, found)
    return PartitionsRelayed(ErrorCode.NONE, None, found)


def by_topic(answers: tuple[PartitionAnswer, ...]) -> dict[str, list[PartitionAnswer]]:
    """In order of appearance."""
    topics: dict[str, list[PartitionAnswer]] = {}
    for one in answers:
        topics.setdefault(one.topic, []).append(one)
    return topics
