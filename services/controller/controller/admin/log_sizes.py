"""Sizes of logs. Brokers are asked for named logs, a slice at a time.

A broker may have tens of thousands of logs. One answer with all of them would hold up the event
loops of the broker and of the controller.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.types import LogDir
from tidemark.client.errors import error_for
from tidemark.kafka.apis import ApiKey
from tidemark.model.ids import NO_BROKER
from tidemark.model.topics import TopicPartition

from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, from_cluster

LOGS_PER_CALL_MAX: Final = 500

PartitionKey = tuple[str, int]


class LogTotal(NamedTuple):
    """Logs of one directory: their number, and the sum of their sizes."""

    logs: int = 0
    size_bytes: int = 0


async def directories_with(
    ctx: AdminContext, broker_id: int, keys: Iterable[PartitionKey]
) -> list[LogDir]:
    """Return the log directories of one broker with the logs of ``keys`` only, at most
    LOGS_PER_CALL_MAX. Raises AdminError.
    """
    topics: dict[str, list[int]] = defaultdict(list)
    for name, partition in keys:
        topics[name].append(partition)
    wanted = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    answer = await ctx.brokers.ask(broker_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": wanted})
    if answer.error_code:
        raise from_cluster(error_for(answer.error_code, "describing log directories failed"))
    return admin_requests.read_log_dirs(broker_id, answer)


async def log_totals(
    ctx: AdminContext, broker_id: int, keys: Sequence[PartitionKey]
) -> dict[str, LogTotal]:
    """Return the totals of the logs of ``keys`` by the path of the directory. Raises AdminError."""
    totals: dict[str, LogTotal] = {}
    for some in _slices(keys):
        totals = with_logs(totals, await directories_with(ctx, broker_id, some))
    return totals


def with_logs(totals: Mapping[str, LogTotal], directories: Iterable[LogDir]) -> dict[str, LogTotal]:
    """Return totals with the logs of one answer added. Pure."""
    after = dict(totals)
    for one in directories:
        logs, size_bytes = after.get(one.path, LogTotal())
        added = sum(each.size_bytes for each in one.replicas.values())
        after[one.path] = LogTotal(logs + len(one.replicas), size_bytes + added)
    return after


def _slices(keys: Sequence[PartitionKey]) -> Iterator[Sequence[PartitionKey]]:
    for first in range(0, len(keys), LOGS_PER_CALL_MAX):
        yield keys[first : first + LOGS_PER_CALL_MAX]


async def leader_sizes(
    ctx: AdminContext, wanted: Mapping[int, Sequence[PartitionKey]]
) -> dict[PartitionKey, int]:
    """Return the sizes of the logs of partitions, ``wanted`` by the broker that leads them, as far
    as known.
    """
    leaders = [one for one in wanted if one != NO_BROKER]
    answers = await ctx.each(leaders, lambda one: _sizes_at(ctx, one, wanted[one]))
    found: dict[PartitionKey, int] = {}
    for answer in answers.values():
        if not isinstance(answer, AdminError):
            found |= answer
    return found


async def _sizes_at(
    ctx: AdminContext, broker_id: int, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, int]:
    found: dict[PartitionKey, int] = {}
    for some in _slices(keys):
        found |= sizes_in(await directories_with(ctx, broker_id, some), some)
    return found


def sizes_in(
    directories: Iterable[LogDir], wanted: Iterable[PartitionKey]
) -> dict[PartitionKey, int]:
    """Return the sizes of some logs of a broker, which may have reported others too. Pure."""
    keys, found = list(wanted), dict[PartitionKey, int]()
    for directory in directories:
        for key in keys:
            replica = directory.replicas.get(TopicPartition(*key))
            if replica is not None and not replica.is_future:
                found[key] = replica.size_bytes
    return found
