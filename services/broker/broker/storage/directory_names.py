"""Names of partition directories: ``orders-3``, and the names of those that are not served."""

from typing import Final

from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk

DELETE_SUFFIX: Final = "-delete"
"""Suffix of a directory to be removed, after a delay or after a restart."""
STRAY_SUFFIX: Final = "-stray"
"""Suffix of a directory that belongs to no topic: kept for inspection, never served."""
FUTURE_SUFFIX: Final = "-future"
"""Suffix of the directory of a future log: a copy that is to take a log's place."""
DIRECTORY_NAME_MAX: Final = 255
_ID_HEX: Final = 32


def partition_of(directory: str) -> TopicPartition | None:
    """Return the partition of a directory's name; None if it is not a partition's."""
    topic, dash, number = directory.rpartition("-")
    if not (topic and dash and number.isascii() and number.isdigit()):
        return None
    return TopicPartition(topic, int(number))


def future_name(topic_partition: TopicPartition, topic_id: TopicId) -> str:
    """Return the name of a future log's directory."""
    return f"{topic_partition}.{topic_id.hex()}{FUTURE_SUFFIX}"


def future_of(directory: str) -> TopicPartition | None:
    """Return the partition of a future log's directory; None if it is not one."""
    name, dot, topic_id = directory.removesuffix(FUTURE_SUFFIX).rpartition(".")
    if not (directory.endswith(FUTURE_SUFFIX) and dot and len(topic_id) == _ID_HEX):
        return None
    return partition_of(name)


def rename_away(disk: Disk, directory: str, unique: str, suffix: str) -> str:
    """Rename to ``<directory>.<unique><suffix>``, cut to fit; return the new name."""
    number, name = 0, ""
    while not name or disk.exists(name):
        ending = (f".{unique}" if unique else "") + (f".{number}" if number else "") + suffix
        name = directory[: DIRECTORY_NAME_MAX - len(ending)] + ending
        number += 1
    disk.rename(directory, name)
    return name


def was_deleted(disk: Disk, topic_partition: TopicPartition) -> bool:
    """True if a directory of this partition is to be removed."""
    return any(
        name.startswith(f"{topic_partition}.") and name.endswith(DELETE_SUFFIX)
        for name in disk.list("")
    )


def has_records(disk: Disk, directory: str) -> bool:
    """True if a directory has a segment that is not empty."""
    return any(
        name.endswith(".log") and disk.size_of(f"{directory}/{name}")
        for name in disk.list(directory)
    )
