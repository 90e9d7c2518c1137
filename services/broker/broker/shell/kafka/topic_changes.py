"""Changes of topics that a request names: checked here, relayed to the controller, and answered
once this broker's own metadata shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId

from broker.shell.cluster.controller_relay import ControllerRelay
from broker.shell.throttling import Mutations
from broker.shell.wire_mapping import NewTopic, TopicRef, TopicResult, WiderTopic

ChangeT = TypeVar("ChangeT", NewTopic, WiderTopic)


@dataclass(frozen=True, slots=True)
class TopicChanges(Generic[ChangeT]):
    """One kind of change: an RPC of the controller, and the checks of this broker before it.
    ``permits`` returns the partitions that a change creates or deletes.
    """

    method: str
    mutations: Mutations
    permits: Callable[[Struct], int]
    refuse: Callable[[Struct], TopicResult | None]
    read: Callable[[Struct], ChangeT]
    write: Callable[[Sequence[ChangeT]], Message]


async def relay_changes(
    relay: ControllerRelay, changes: TopicChanges[ChangeT], request: Struct
) -> Collection[TopicResult]:
    """Return one result for each name, in the order of the request; a name given twice is refused
    once.
    """
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, TopicResult] = {}
    wanted: list[ChangeT] = []
    permits: dict[str, int] = {}
    for topic in request.topics:
        refused = _duplicate(topic.name) if times[topic.name] > 1 else changes.refuse(topic)
        if refused is None:
            permits[topic.name] = changes.permits(topic)
            refused = over_quota(changes.mutations, topic.name, permits[topic.name])
        results[topic.name] = refused or TopicResult(topic.name, NO_TOPIC_ID, ErrorCode.NONE)
        if refused is None:
            wanted.append(changes.read(topic))
    if wanted:
        for result in await relay.topics(
            changes.method,
            changes.write(wanted),
            named=[TopicRef(topic.name) for topic in wanted],
            timeout_ms=request.timeout,
            validate_only=request.validate_only,
        ):
            results[result.name] = result
        for topic in wanted:
            changes.mutations.settle(permits[topic.name], results[topic.name].error_code)
    return results.values()


def over_quota(
    mutations: Mutations, name: str, permits: int, topic_id: TopicId = NO_TOPIC_ID
) -> TopicResult | None:
    """Return the error of a change of so many partitions that the client's quota does not allow."""
    if not mutations.refuses(permits):
        return None
    return TopicResult(
        name,
        topic_id,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        "The throttling quota has been exceeded.",
    )


def _duplicate(name: str) -> TopicResult:
    return TopicResult(name, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
