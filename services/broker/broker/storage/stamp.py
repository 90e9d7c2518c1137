"""The stamp of a log directory: its owner, so that a foreign disk is never served nor overwritten.

``meta.properties``, lines ``key=value``: version (1), cluster.id (empty until the broker has joined
one), broker.id, directory.id, and boot.id. The boot id is that of the kernel when the directory was
last used: if it is the same, the page cache has survived the end of the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidemark.storage.disk import Disk

from broker.storage.disk_failures import FAILED_DISKS

META_PROPERTIES: Final = "meta.properties"
FORMAT_VERSION: Final = 1
_NO_STRANGERS: Final = (".", "lost+found", FAILED_DISKS)
"""Names in a directory that counts as empty. While another directory is opened, a note of its
failure may be written here before the stamp is.
"""
_KEYS: Final = ("cluster.id", "broker.id", "directory.id", "boot.id")


class StampError(Exception):
    """A directory that must not be used as requested; the message has the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class DiskStamp:
    """Owner of a log directory. An empty ``cluster_id``: not part of a cluster yet."""

    cluster_id: str
    broker_id: int
    directory_id: str
    boot_id: str
    format: int = FORMAT_VERSION


def read_stamp(disk: Disk) -> DiskStamp | None:
    """Return the stamp, or None. Raises StampError for a newer format or an unreadable stamp."""
    try:
        text = disk.read_whole(META_PROPERTIES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    fields = dict(
        line.split("=", 1) for line in text.split("\n") if "=" in line and not line.startswith("#")
    )
    version = _number(fields, "version")
    if version > FORMAT_VERSION:
        raise StampError(
            f"{META_PROPERTIES}: format version {version} is newer than this release supports"
            f" ({FORMAT_VERSION}); start a release that supports it"
        )
    missing = [key for key in _KEYS if key not in fields]
    if missing:
        raise StampError(f"{META_PROPERTIES}: {missing[0]} is missing")
    return DiskStamp(
        cluster_id=fields["cluster.id"],
        broker_id=_number(fields, "broker.id"),
        directory_id=fields["directory.id"],
        boot_id=fields["boot.id"],
        format=version,
    )


def _number(fields: Mapping[str, str], key: str) -> int:
    try:
        return int(fields[key])
    except (KeyError, ValueError):
        raise StampError(f"{META_PROPERTIES}: {key} is missing or not a number") from None


def write_stamp(disk: Disk, stamp: DiskStamp) -> None:
    """Write a stamp; durable on return."""
    lines = (
        f"version={stamp.format}",
        f"cluster.id={stamp.cluster_id}",
        f"broker.id={stamp.broker_id}",
        f"directory.id={stamp.directory_id}",
        f"boot.id={stamp.boot_id}",
        "",
    )
    disk.replace_whole(META_PROPERTIES, "\n".join(lines).encode())


def check_stamp(stamp: DiskStamp, *, cluster_id: str | None, broker_id: int) -> None:
    """Refuse a directory of another cluster or broker. ``cluster_id`` None: unknown."""
    if stamp.broker_id != broker_id:
        raise StampError(
            f"{META_PROPERTIES}: this log directory belongs to broker {stamp.broker_id},"
            f" not {broker_id}; check broker.id and log.dirs"
        )
    if cluster_id and stamp.cluster_id and stamp.cluster_id != cluster_id:
        raise StampError(
            f"{META_PROPERTIES}: this log directory belongs to cluster {stamp.cluster_id},"
            f" not {cluster_id}; check zookeeper.connect and log.dirs"
        )


def settle_stamp(
    disk: Disk, *, cluster_id: str | None, broker_id: int, directory_id: str
) -> DiskStamp:
    """Return the directory's stamp. An empty directory gets a new one, with ``directory_id`` and no
    boot.

    The caller changes the boot id after it has recovered the logs, since recovery depends on it.
    Raises StampError for a foreign directory, and for one that has files but no stamp.
    """
    existing = read_stamp(disk)
    if existing is None:
        strangers = [name for name in disk.list("") if not name.startswith(_NO_STRANGERS)]
        if strangers:
            raise StampError(
                f"the log directory has no {META_PROPERTIES} but is not empty ({strangers[0]});"
                " give an empty one, or the right one"
            )
        stamp = DiskStamp(cluster_id or "", broker_id, directory_id, "")
        write_stamp(disk, stamp)
        return stamp
    check_stamp(existing, cluster_id=cluster_id, broker_id=broker_id)
    return replace(existing, cluster_id=existing.cluster_id or cluster_id or "")
