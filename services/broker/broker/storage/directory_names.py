"""Names of partition directories: ``orders-3``, and what they become when they are not served."""

from typing import Final

from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk

DELETE_SUFFIX: Final = "-delete"
"""On its way out; removed after a while, or after a restart."""
STRAY_SUFFIX: Final = "-stray"
"""No topic owns it: kept for people to look at, never served."""
DIRECTORY_NAME_MAX: Final = 255


def partition_of(directory: str) -> TopicPartition | None:
    """Whose directory a name is; None for one that is no partition's."""
    topic, dash, number = directory.rpartition("-")
    if not (topic and dash and number.isascii() and number.isdigit()):
        return None
    return TopicPartition(topic, int(number))


def rename_away(disk: Disk, directory: str, unique: str, suffix: str) -> str:
    """Rename to ``<directory>.<unique><suffix>``, a topic's name cut to what fits; the new name."""
    number, name = 0, ""
    while not name or disk.exists(name):
        ending = (f".{unique}" if unique else "") + (f".{number}" if number else "") + suffix
        name = directory[: DIRECTORY_NAME_MAX - len(ending)] + ending
        number += 1
    disk.rename(directory, name)
    return name


def was_deleted(disk: Disk, topic_partition: TopicPartition) -> bool:
    """Whether a directory of this partition is on its way out."""
    return any(
        name.startswith(f"{topic_partition}.") and name.endswith(DELETE_SUFFIX)
        for name in disk.list("")
    )


def has_records(disk: Disk, directory: str) -> bool:
    """Whether a directory holds a segment that is not empty."""
    return any(
        name.endswith(".log") and disk.size_of(f"{directory}/{name}")
        for name in disk.list(directory)
    )
