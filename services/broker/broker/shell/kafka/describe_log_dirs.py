"""DescribeLogDirs (35): content of each log directory, and its free space."""

from __future__ import annotations

import os
from collections.abc import Collection

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode

from broker.shell.facts import BrokerFacts
from broker.shell.partitions.directory_spaces import UNKNOWN, DirectorySpaces, Space
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.replica_move import ReplicaMove
from broker.shell.partitions.table import PartitionTable
from broker.shell.request_context import RequestContext
from broker.storage.log_manager import LogManager


async def handle(
    facts: BrokerFacts,
    table: PartitionTable,
    disks: DiskHealth,
    spaces: DirectorySpaces,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return one result for each directory, with all partitions or those named. A directory that is
    fenced, or could not be opened, has KAFKA_STORAGE_ERROR; one that is only full has its logs
    besides.
    """
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE, CLUSTER):
        return {"error_code": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "results": []}
    opened = [path for path in facts.config.log_dirs if path not in disks.failed_directories]
    managers = list(zip(opened, disks.log_managers, strict=True))
    space = {path: await spaces.of(path) for path, manager in managers if manager.failure is None}
    asked = _asked(table, request)
    return {
        "error_code": int(ErrorCode.NONE),
        "results": [
            _directory(path, manager, asked, space.get(path, UNKNOWN)) for path, manager in managers
        ]
        + [_failed(path) for path in disks.failed_directories],
    }


def _asked(table: PartitionTable, request: Struct) -> Collection[HostedPartition]:
    """Return the partitions that are asked about and hosted here. Named ones are looked up: a
    broker may have many others.
    """
    if request.topics is None:
        return table.by_name.values()
    named = {(one.topic, number) for one in request.topics for number in one.partitions}
    return [table.by_name[key] for key in sorted(named) if key in table.by_name]


def _failed(path: str) -> dict[str, object]:
    return {
        "error_code": int(ErrorCode.KAFKA_STORAGE_ERROR),
        "log_dir": os.path.abspath(path),
        "topics": [],
    }


def _directory(
    path: str, manager: LogManager, asked: Collection[HostedPartition], space: Space
) -> dict[str, object]:
    if manager.failure is not None:
        return _failed(path)
    state = ErrorCode.NONE if manager.fenced is None else ErrorCode.KAFKA_STORAGE_ERROR
    topics: dict[str, list[dict[str, object]]] = {}
    for hosted in asked:
        partitions = topics.setdefault(hosted.topic_partition.topic, [])
        if hosted.manager is manager:
            partitions.append(_partition(hosted))
        if hosted.move is not None and hosted.move.manager is manager:
            partitions.append(_future(hosted, hosted.move))
    return {
        "error_code": int(state),
        "log_dir": os.path.abspath(path),
        "topics": [
            {"name": name, "partitions": partitions}
            for name, partitions in sorted(topics.items())
            if partitions
        ],
        "total_bytes": space.total_bytes,
        "usable_bytes": space.usable_bytes,
    }


def _partition(hosted: HostedPartition) -> dict[str, object]:
    """Describe one partition. ``offset_lag``: offsets that a follower is behind the high watermark;
    0 for a leader.
    """
    return {
        "partition_index": hosted.topic_partition.partition,
        "partition_size": hosted.log.size_bytes,
        "offset_lag": max(0, hosted.partition.high_watermark - hosted.partition.log_end),
        "is_future_key": False,
    }


def _future(hosted: HostedPartition, move: ReplicaMove) -> dict[str, object]:
    """Describe a future log. ``offset_lag``: offsets that it is behind the log."""
    return {
        "partition_index": hosted.topic_partition.partition,
        "partition_size": move.future.size_bytes,
        "offset_lag": max(0, hosted.log.log_end - move.future.log_end),
        "is_future_key": True,
    }
