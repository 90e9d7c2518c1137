"""Sources of a bundle from the brokers: metadata, settings, groups and transactions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from tidemark.cli.admin_client import open_admin
from tidemark.cli.cluster import admin as cluster_admin
from tidemark.cli.debug.bundle import Source
from tidemark.cli.debug.sources import as_json
from tidemark.cli.group import admin as group_admin
from tidemark.cli.topic import admin as topic_admin
from tidemark.cli.txn import admin as txn_admin
from tidemark.client.admin.types import ConfigResource

Call = Callable[[str], Coroutine[Any, Any, Any]]

_SLOW_REQUESTS_MAX: Final = 1_000
_TXN_TIMEOUT_MS_MAX: Final = 900_000  # transaction.max.timeout.ms


def of_cluster(bootstrap: str) -> Iterator[Source]:
    """Yield the reports of brokers. Each source has a connection of its own, in a thread."""
    calls: dict[str, Call] = {
        "brokers": cluster_admin.brokers,
        "health": cluster_admin.health,
        "log-dirs": lambda servers: cluster_admin.log_dirs(servers, ()),
        "topics": _topics,
        "broker-configs": _broker_configs,
        "groups": lambda servers: group_admin.list_all(servers, states=(), kinds=()),
        "reassignments": _reassignments,
        "transactions": lambda servers: txn_admin.list_all(
            servers, states=(), pattern=None, duration_ms_min=-1
        ),
        "hanging-transactions": lambda servers: txn_admin.list_hanging(
            servers, (), timeout_ms_max=_TXN_TIMEOUT_MS_MAX
        ),
        "last-stable-offsets": lambda servers: txn_admin.holders(servers, ()),
    }
    for name, call in calls.items():
        yield Source(f"cluster/{name}.json", partial(_answer, call, bootstrap))


def slow_requests_of(bootstrap: str) -> Source:
    """Return the slow requests that brokers remember. ``bootstrap``: gRPC addresses."""
    return Source("cluster/slow-requests.json", partial(_answer, _slow_requests, bootstrap))


async def _slow_requests(bootstrap: str) -> Any:
    # gRPC is imported by this source alone.
    from tidemark.cli.debug.slow import slow_requests

    found = await slow_requests(bootstrap, (), api=None, count=_SLOW_REQUESTS_MAX)
    return {"requests": found.rows, "notes": found.notes}


def _answer(call: Call, bootstrap: str) -> bytes:
    return as_json(asyncio.run(call(bootstrap)))


async def _topics(bootstrap: str) -> Any:
    async with open_admin(bootstrap) as admin:
        names = await admin.list_topics(internal=True)
    return await topic_admin.describe(bootstrap, names, all_configs=False)


async def _broker_configs(bootstrap: str) -> Any:
    """Return every setting of each broker that is not a default; no broker reports secrets."""
    async with open_admin(bootstrap) as admin:
        brokers = (await admin.describe_cluster()).brokers
        resources = [ConfigResource("broker", str(each.broker_id)) for each in brokers]
        described = await admin.describe_configs([*resources, ConfigResource("broker", "")])
    return {
        resource.name or "default of all brokers": {
            name: {"value": entry.value, "source": entry.source}
            for name, entry in entries.items()
            if not entry.is_default and not entry.is_sensitive
        }
        for resource, entries in described.items()
    }


async def _reassignments(bootstrap: str) -> Any:
    async with open_admin(bootstrap) as admin:
        moves = await admin.list_partition_reassignments()
    return {str(partition): move._asdict() for partition, move in moves.items()}
