"""ControllerRelay: forwards changes that the controller decides, with the principal of the client,
and answers once this broker's own metadata shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_TOPIC_ID, InstantMs
from tidemark.model.metadata import START_OF_FEED
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_wire import read_position

from broker.shell.cluster.quota_mapping import (
    QuotaAlteration,
    QuotaResult,
    read_quota_results,
    write_alter_quotas,
)
from broker.shell.cluster.user_mapping import (
    CredentialDeletion,
    CredentialUpsertion,
    UserResult,
    read_user_results,
    write_alter_users,
)
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import (
    AlterationResult,
    Caller,
    ConfigAlteration,
    FeedDescription,
    Relayed,
    TopicRef,
    TopicResult,
    read_alteration_results,
    read_feed,
    read_topic_results,
    write_alter_configs,
    write_describe_feed,
)

TRIGGER_TIMEOUT_MS: Final = 5_000
"""Time for the controller if a client does not want to wait (timeout <= 0): the change is to be
made all the same.
"""

RELAY_TIMEOUT_MS_MAX: Final = 300_000
"""Longest time that a broker holds a request, whatever the client allows."""

ALTER_CONFIGS_TIMEOUT_MS: Final = 30_000
"""Timeout of requests that alter configuration or users: in Kafka's protocol they carry none."""


class HasCode(Protocol):
    """Result of one part of a change."""

    @property
    def error_code(self) -> ErrorCode:
        """Outcome of this part."""
        ...


ResultT = TypeVar("ResultT", bound=HasCode)


class PartitionAnswer(NamedTuple):
    """Outcome of one partition."""

    topic: str
    partition: int
    error_code: ErrorCode
    message: str | None


class PartitionsRelayed(NamedTuple):
    """Error of the request as a whole, and the outcome of each partition that the controller
    names.
    """

    error_code: ErrorCode
    message: str | None
    partitions: tuple[PartitionAnswer, ...]


def caller_of(context: RequestContext) -> Caller:
    """Return the client of a request."""
    return Caller(context.requester, context.client_id or "", context.request_id)


class ControllerRelay:
    """Forwards requests of this broker's clients to the active controller."""

    def __init__(self, controller: ControllerClient, metadata: MetadataCache, clock: Clock) -> None:
        self._controller = controller
        self._metadata = metadata
        self._clock = clock

    async def topics(
        self,
        method: str,
        message: Message,
        *,
        named: Sequence[TopicRef],
        timeout_ms: int,
        validate_only: bool = False,
    ) -> list[TopicResult]:
        """Ask the active controller for a change of topics. Returns one result for each topic
        named, in their order.

        Waits until this broker's feed has reached the change, so that a client that reads its own
        metadata here sees it. If that takes longer than ``timeout_ms``, the change continues, and
        what succeeded is answered as REQUEST_TIMED_OUT.
        """
        deadline = self._deadline(timeout_ms)
        try:
            response = await self._controller.call(method, message, _call_timeout_s(timeout_ms))
        except TidemarkError as failure:
            return [_failed(ref, failure.code, failure.message) for ref in named]
        relayed: Relayed[TopicResult] = read_topic_results(response)
        if relayed.error_code is not ErrorCode.NONE:
            return [_failed(ref, relayed.error_code, None) for ref in named]
        results = _in_order(relayed.results, named)
        if validate_only or await self._seen(relayed, deadline):
            return results
        return [_timed_out(result) for result in results]

    async def alterations(
        self,
        caller: Caller,
        alterations: Sequence[ConfigAlteration],
        *,
        validate_only: bool,
    ) -> list[AlterationResult]:
        """Ask the active controller to alter configurations. Returns one result for each resource,
        in their order.
        """
        if not alterations:
            return []
        deadline = self._deadline(ALTER_CONFIGS_TIMEOUT_MS)
        message = write_alter_configs(
            caller, alterations, validate_only=validate_only, timeout_ms=ALTER_CONFIGS_TIMEOUT_MS
        )
        try:
            response = await self._controller.call(
                "AlterConfigs", message, _call_timeout_s(ALTER_CONFIGS_TIMEOUT_MS)
            )
        except TidemarkError as failure:
            return _all_altered(alterations, failure.code, failure.message)
        relayed = read_alteration_results(response)
        if relayed.error_code is not ErrorCode.NONE:
            return _all_altered(alterations, relayed.error_code, None)
        if validate_only or await self._seen(relayed, deadline):
            return list(relayed.results)
        return [
            result._replace(error_code=ErrorCode.REQUEST_TIMED_OUT)
            if result.error_code is ErrorCode.NONE
            else result
            for result in relayed.results
        ]

    async def quotas(
        self, caller: Caller, entries: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[QuotaResult]:
        """Ask the active controller to set and remove client quotas. Returns one result for each
        entry, in their order. This broker enforces the quotas when it answers.
        """
        if not entries:
            return []
        deadline = self._deadline(ALTER_CONFIGS_TIMEOUT_MS)
        message = write_alter_quotas(
            caller, entries, validate_only=validate_only, timeout_ms=ALTER_CONFIGS_TIMEOUT_MS
        )
        try:
            response = await self._controller.call(
                "AlterQuotas", message, _call_timeout_s(ALTER_CONFIGS_TIMEOUT_MS)
            )
        except TidemarkError as failure:
            return [QuotaResult(failure.code, failure.message)] * len(entries)
        relayed = read_quota_results(response)
        if relayed.error_code is not ErrorCode.NONE:
            return [QuotaResult(relayed.error_code)] * len(entries)
        if len(relayed.results) != len(entries):
            return [QuotaResult(ErrorCode.UNKNOWN_SERVER_ERROR)] * len(entries)
        if validate_only or await self._seen(relayed, deadline):
            return list(relayed.results)
        return [
            QuotaResult(ErrorCode.REQUEST_TIMED_OUT) if one.error_code is ErrorCode.NONE else one
            for one in relayed.results
        ]

    async def users(
        self,
        caller: Caller,
        deletions: Sequence[CredentialDeletion],
        upsertions: Sequence[CredentialUpsertion],
    ) -> list[UserResult]:
        """Ask the active controller to set and remove credentials. Returns one result for each
        user. A login at this broker sees the change at once.
        """
        both = [one.user for one in deletions] + [one.user for one in upsertions]
        named = list(dict.fromkeys(both))
        if not named:
            return []
        deadline = self._deadline(ALTER_CONFIGS_TIMEOUT_MS)
        message = write_alter_users(
            caller, deletions, upsertions, timeout_ms=ALTER_CONFIGS_TIMEOUT_MS
        )
        try:
            response = await self._controller.call(
                "AlterUsers", message, _call_timeout_s(ALTER_CONFIGS_TIMEOUT_MS)
            )
        except TidemarkError as failure:
            return [UserResult(user, failure.code, failure.message) for user in named]
        relayed = read_user_results(response)
        if relayed.error_code is not ErrorCode.NONE:
            return [UserResult(user, relayed.error_code) for user in named]
        if await self._seen(relayed, deadline):
            return list(relayed.results)
        return [
            one._replace(error_code=ErrorCode.REQUEST_TIMED_OUT)
            if one.error_code is ErrorCode.NONE
            else one
            for one in relayed.results
        ]

    async def change(
        self, method: str, message: Message, read: Callable[[Any], Relayed[ResultT]]
    ) -> tuple[tuple[ResultT, ...], bool]:
        """Ask the active controller for a change of another kind. Returns its results, and True
        if this broker's metadata shows the change. Raises TidemarkError.
        """
        deadline = self._deadline(ALTER_CONFIGS_TIMEOUT_MS)
        timeout_s = _call_timeout_s(ALTER_CONFIGS_TIMEOUT_MS)
        relayed = read(await self._controller.call(method, message, timeout_s))
        if relayed.error_code is not ErrorCode.NONE:
            raise TidemarkError(relayed.error_code, "the controller refused the change")
        return relayed.results, await self._seen(relayed, deadline)

    async def feed(self, caller: Caller) -> FeedDescription:
        """Ask the active controller for its feed. Raises TidemarkError."""
        message = write_describe_feed(caller)
        timeout_s = _call_timeout_s(TRIGGER_TIMEOUT_MS)
        return read_feed(await self._controller.call("DescribeFeed", message, timeout_s))

    async def _seen(self, relayed: Relayed[ResultT], deadline: InstantMs) -> bool:
        """True if this broker's metadata shows the change by ``deadline``; a change without effect
        shows at once.
        """
        if relayed.position <= START_OF_FEED or all(
            result.error_code is not ErrorCode.NONE for result in relayed.results
        ):
            return True
        return await self._metadata.wait_for(relayed.position, self._clock.seconds_until(deadline))

    def _deadline(self, timeout_ms: int) -> InstantMs:
        return InstantMs(self._clock.now_ms() + max(0, min(timeout_ms, RELAY_TIMEOUT_MS_MAX)))

    async def partitions(self, method: str, message: Message, timeout_ms: int) -> PartitionsRelayed:
        """Ask the active controller for a change of partitions. It continues even if this broker
        does not see it in time.
        """
        wanted_ms = min(timeout_ms if timeout_ms > 0 else TRIGGER_TIMEOUT_MS, RELAY_TIMEOUT_MS_MAX)
        deadline = InstantMs(self._clock.now_ms() + wanted_ms)
        try:
            response: Any = await self._controller.call(method, message, wanted_ms / 1_000)
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
        if not await self._metadata.wait_for(
            read_position(response.position), self._clock.seconds_until(deadline)
        ):
            words = (
                "the change is made, but this broker's metadata did not show it within the timeout"
            )
            return PartitionsRelayed(ErrorCode.REQUEST_TIMED_OUT, words, found)
        return PartitionsRelayed(ErrorCode.NONE, None, found)


def _call_timeout_s(timeout_ms: int) -> float:
    wanted_ms = timeout_ms if timeout_ms > 0 else TRIGGER_TIMEOUT_MS
    return min(wanted_ms, RELAY_TIMEOUT_MS_MAX) / 1_000


def _in_order(results: Sequence[TopicResult], named: Sequence[TopicRef]) -> list[TopicResult]:
    """Complete the controller's results, which are in the order of the request: a refused topic may
    lack its name or id.
    """
    if len(results) != len(named):
        message = f"the controller answered {len(results)} of {len(named)} topics"
        return [_failed(ref, ErrorCode.UNKNOWN_SERVER_ERROR, message) for ref in named]
    return [
        result._replace(
            name=result.name or ref.name,
            topic_id=ref.topic_id if result.topic_id == NO_TOPIC_ID else result.topic_id,
        )
        for ref, result in zip(named, results, strict=True)
    ]


def _failed(ref: TopicRef, error_code: ErrorCode, message: str | None) -> TopicResult:
    return TopicResult(ref.name, ref.topic_id, error_code, message)


def _timed_out(result: TopicResult) -> TopicResult:
    if result.error_code is not ErrorCode.NONE:
        return result
    return TopicResult(
        result.name,
        result.topic_id,
        ErrorCode.REQUEST_TIMED_OUT,
        "the change is made, but this broker's metadata did not show it within the timeout",
    )


def _all_altered(
    alterations: Sequence[ConfigAlteration], error_code: ErrorCode, message: str | None
) -> list[AlterationResult]:
    return [
        AlterationResult(one.resource_type, one.resource_name, error_code, message)
        for one in alterations
    ]


def by_topic(answers: tuple[PartitionAnswer, ...]) -> dict[str, list[PartitionAnswer]]:
    """Group answers by topic, in order of appearance."""
    topics: dict[str, list[PartitionAnswer]] = {}
    for one in answers:
        topics.setdefault(one.topic, []).append(one)
    return topics
