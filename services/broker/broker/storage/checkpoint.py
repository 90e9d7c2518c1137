"""Small text files that are replaced as a whole: offsets per partition, leader epochs, a topic's
id.

Each begins with a line with the format version (Kafka's formats, all version 0 here). A newer
version is refused by name, so that an older release never misreads a newer one's files.
"""

import base64
import binascii
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk

_log: Final = logging.getLogger(__name__)
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
GAPS: Final = "replicated-gaps-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = "clean-shutdown"
_VERSION: Final = 0


class CheckpointError(Exception):
    """A file that cannot be used; the message has its path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NewerVersionError(CheckpointError):
    """A file of a newer release. Never ignored, never overwritten."""


def check_version(path: str, text: str) -> None:
    """Check that the version is this release's. Raises CheckpointError, NewerVersionError."""
    try:
        version = int(text)
    except ValueError:
        raise CheckpointError(path, f"expected a version, found {text[:40]!r}") from None
    if version > _VERSION:
        raise NewerVersionError(path, f"version {version} is newer than this release supports")
    if version < _VERSION:
        raise CheckpointError(path, f"unknown version {version}")


def _read_lines(disk: Disk, path: str) -> list[str] | None:
    """Return the entries of a checkpoint after version and count; None if there is no such file."""
    try:
        lines = disk.read_whole(path).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return None
    check_version(path, lines[0])
    entries = [line for line in lines[2:] if line]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise CheckpointError(path, "the number of entries is not what the second line says")
    return entries


def _encode_lines(entries: Sequence[str]) -> bytes:
    return "\n".join((str(_VERSION), str(len(entries)), *entries, "")).encode()


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition; {} if there is no such file. Raises CheckpointError."""
    offsets = {}
    for line in _read_lines(disk, path) or ():
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CheckpointError(path, f"cannot read the line {line[:80]!r}") from None
    return offsets


def write_offsets(
    disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool
) -> None:
    """Replace an offset checkpoint."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    disk.replace_whole(path, _encode_lines(lines), sync=sync)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Return (leader epoch, start offset), oldest first; [] if there is no such file."""
    entries: list[tuple[int, int]] = []
    for line in _read_lines(disk, path) or ():
        try:
            epoch, start = map(int, line.split(" "))
        except ValueError:
            raise CheckpointError(path, f"cannot read the line {line[:80]!r}") from None
        if entries and (epoch <= entries[-1][0] or start < entries[-1][1]):
            raise CheckpointError(path, f"epoch {epoch} from {start} on is out of order")
        entries.append((epoch, start))
    return entries


def write_epochs(disk: Disk, path: str, entries: Sequence[tuple[int, int]]) -> None:
    """Replace a leader-epoch checkpoint. It survives this process; the kernel makes it durable
    later.

    Recovery compares it with the batches, so a lost update costs a scan and loses no epoch.
    """
    disk.replace_whole(path, _encode_lines([f"{e} {start}" for e, start in entries]), sync=False)


def read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    """Return the topic id of a partition's directory; None if partition.metadata is missing."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        text = disk.read_whole(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    check_version(path, fields.get("version", ""))
    try:
        topic_id = base64.urlsafe_b64decode(fields.get("topic_id", "") + "==")
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != 16:
        raise CheckpointError(path, "no topic id of 16 bytes")
    return TopicId(topic_id)


def topic_id_text(topic_id: TopicId) -> str:
    """Return a topic id in Kafka's text form: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def write_topic_id(disk: Disk, directory: str, topic_id: TopicId) -> None:
    """Write the topic id of a directory; the log's first flush makes it durable."""
    content = f"version: {_VERSION}\ntopic_id: {topic_id_text(topic_id)}\n"
    disk.replace_whole(f"{directory}/{PARTITION_METADATA}", content.encode(), sync=False)


class CleanShutdown(NamedTuple):
    """Marker of the last process if it stopped cleanly."""

    broker_epoch: int
    """Broker epoch; -1 if it never registered."""


def take_clean_shutdown(disk: Disk) -> CleanShutdown | None:
    """Read the marker and remove it durably, so that a later crash is detected.

    Also None if it cannot be read: more is scanned then, and nothing is lost. Raises
    NewerVersionError.
    """
    marker = None
    try:
        fields = json.loads(disk.read_whole(CLEAN_SHUTDOWN))
        check_version(CLEAN_SHUTDOWN, str(int(fields["version"])))
        marker = CleanShutdown(int(fields["broker_epoch"]))
    except FileNotFoundError:
        return None
    except NewerVersionError:
        raise
    except (CheckpointError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s ignored: %s", CLEAN_SHUTDOWN, error)
    disk.remove(CLEAN_SHUTDOWN)
    disk.sync_directory("")
    return marker


def write_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    """Write the marker, as the last file that a process writes."""
    content = json.dumps({"version": _VERSION, "broker_epoch": broker_epoch}) + "\n"
    disk.replace_whole(CLEAN_SHUTDOWN, content.encode())
