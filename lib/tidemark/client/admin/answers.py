"""Readers of admin responses: results by name, or the first failure. Pure."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from tidemark.client.admin.types import ConfigResource, Reassignment, TopicDescription
from tidemark.client.errors import ClientError, error_for
from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import QuotaEntity
from tidemark.model.topics import TopicPartition

Key = TypeVar("Key", bound=Hashable)


def error_codes(answer: long_tail.Struct) -> set[int]:
    """Return the error codes of a response, at its top level and of each resource."""
    codes = {getattr(answer, "error_code", 0)}
    for name in ("topics", "responses", "results", "entries"):
        for result in getattr(answer, name, None) or ():
            codes.add(getattr(result, "error_code", 0))
    return codes


def tolerated(code: int) -> bool:
    """True for errors with which a topic can still be described: missing leaders."""
    return code == ErrorCode.LEADER_NOT_AVAILABLE


def by_name(
    results: Iterable[Any],
    name: Callable[[Any], Key],
    doing: str,
    tolerated: Callable[[int], bool] = lambda code: False,
) -> dict[Key, Any]:
    """Return results by name, or raise the first failure with the others as notes."""
    succeeded: dict[Key, Any] = {}
    failures: list[ClientError] = []
    for result in results:
        if result.error_code == ErrorCode.NONE or tolerated(result.error_code):
            succeeded[name(result)] = result
            continue
        failures.append(
            error_for(
                result.error_code,
                doing.format(_in_words(name(result))) + " failed",
                detail=getattr(result, "error_message", None),
            )
        )
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"also: {other}")
        raise failures[0]
    return succeeded


def _in_words(thing: Hashable) -> str:
    if isinstance(thing, QuotaEntity):
        return thing.in_words
    if not isinstance(thing, ConfigResource):
        return repr(thing)
    if thing.kind in ("broker", "broker-logger"):
        return f"broker {thing.name}" if thing.name else "the default of all brokers"
    return repr(thing.name)


def by_broker(
    resources: Iterable[ConfigResource],
) -> dict[int | None, list[ConfigResource]]:
    """Group resources by the broker to ask; None for what is not a broker's own."""
    groups: dict[int | None, list[ConfigResource]] = defaultdict(list)
    for resource in resources:
        own = resource.kind in ("broker", "broker-logger") and resource.name.isdigit()
        groups[int(resource.name) if own else None].append(resource)
    return groups


def no_leader(topic: TopicDescription | None, partition: TopicPartition) -> ClientError:
    """Return the error of a partition without a leader."""
    missing = topic is not None and partition.partition >= len(topic.partitions)
    if missing:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
    return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")


def collect(
    answer: long_tail.Struct,
    asked: list[TopicPartition],
    found: dict[TopicPartition, long_tail.Struct],
    source: tuple[ApiKey, str],
) -> ClientError | None:
    """Add successful results to ``found``; return a failure, if any.

    ``source`` is the request's API and the broker.
    """
    api_key, where = source
    problem: ClientError | None = None
    answered = set()
    for topic in answer.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            answered.add(partition)
            if result.error_code == ErrorCode.NONE:
                found[partition] = result
            else:
                problem = error_for(
                    result.error_code,
                    f"{api_key.name} for {partition} failed",
                    where=where,
                    detail=getattr(result, "error_message", None),
                )
    if not answered.issuperset(asked):
        return error_for(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the answer to {api_key.name} is incomplete",
            where=where,
        )
    return problem


def alterations(
    answer: long_tail.Struct, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, ClientError | None]:
    """Return the result of each partition of AlterPartitionReassignments."""
    results = {
        TopicPartition(topic.name, one.partition_index): one
        for topic in answer.responses
        for one in topic.partitions
    }
    outcomes: dict[TopicPartition, ClientError | None] = {}
    for partition in asked:
        one = results.get(partition)
        if one is None:
            what = f"the answer about moving {partition} is missing"
            outcomes[partition] = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, what)
        elif one.error_code:
            what = f"moving {partition} failed"
            outcomes[partition] = error_for(one.error_code, what, detail=one.error_message)
        else:
            outcomes[partition] = None
    return outcomes


def reassignments(answer: long_tail.Struct) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments of ListPartitionReassignments."""
    return {
        TopicPartition(topic.name, one.partition_index): Reassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in answer.topics
        for one in topic.partitions
    }
