"""Report of the logs that a broker holds, part of its registration."""

from collections.abc import Iterable
from typing import Literal

from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.start import directory_id
from broker.storage.log import Log
from broker.storage.log_manager import LogManager

Kind = Literal["sound", "damaged", "lost"]


def held_logs(managers: Iterable[LogManager]) -> pb.HeldLogs:
    """Return every log with its worth as a witness, and logs that only a checkpoint names."""
    topics: dict[tuple[bytes, bytes], pb.HeldLogs.Topic] = {}
    missing: dict[str, pb.HeldLogs.Missing] = {}
    lacking: set[TopicPartition] = set()
    there: set[TopicPartition] = set()
    for manager in managers:
        lacking |= manager.missing
        there |= manager.logs.keys()
        log_dir_id = directory_id(manager.stamp.directory_id)
        for topic_partition, one in manager.logs.items():
            new = pb.HeldLogs.Topic(topic_id=one.topic_id, log_dir_id=log_dir_id)
            topic = topics.setdefault((one.topic_id, log_dir_id), new)
            getattr(topic, worth(manager, one)).append(topic_partition.partition)
    for name, number in sorted(lacking - there):
        missing.setdefault(name, pb.HeldLogs.Missing(topic=name)).partitions.append(number)
    return pb.HeldLogs(topics=topics.values(), missing=missing.values())


def worth(manager: LogManager, one: Log) -> Kind:
    """Return the worth of a log as a witness. A log whose end may be missing counts as lost,
    however much of it is left.
    """
    if manager.failure is not None or manager.distrusted is not None or one.health.end_lost:
        return "lost"
    return "sound" if one.damage is None else "damaged"
