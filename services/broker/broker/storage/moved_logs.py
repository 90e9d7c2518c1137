"""Logs that exist in two directories after a start, because a move between them was interrupted."""

from collections.abc import Sequence

from broker.storage.log import Log
from broker.storage.log_manager import LogManager


def settle_moves(managers: Sequence[LogManager], *, all_open: bool) -> list[Log]:
    """Remove the logs that others have replaced, and return them. ``all_open``: no directory of the
    broker was left out. Raises DiskError.

    What replaced a log is not trusted if its disk failed, or it has lost its end: then the log that
    reaches further is kept, as whenever there are two.
    """
    by_id = {manager.stamp.directory_id: manager for manager in managers}
    removed: list[Log] = []
    for manager in managers:
        for topic_partition, sources in tuple(manager.futures.moved_from.items()):
            log = manager.logs[topic_partition]
            if manager.distrusted is not None or log.health.end_lost:
                continue
            for source in sources & by_id.keys():
                void = by_id[source].logs.get(topic_partition)
                if void is not None and void is not log and void.topic_id == log.topic_id:
                    removed.append(remove_void(by_id[source], void))
            if all_open or sources <= by_id.keys():
                manager.futures.forget_sources(topic_partition)
    return removed


def remove_void(manager: LogManager, void: Log) -> Log:
    """Remove a log that another directory's has replaced, and return it once that is on disk:
    only then may its replacement forget it. Raises DiskError.
    """
    manager.delete(void.topic_partition)
    manager.disk.sync_directory("")
    return void


def change_places(source: LogManager, target: LogManager, log: Log, high_watermark: int) -> Log:
    """Put the future log of ``target`` in the place of ``log``, and return it. The old files stay
    until the new name is on disk. Raises DiskError, with nothing changed but the future log, which
    must be discarded then.
    """
    future = target.futures.promote(log, high_watermark)
    source.release(log.topic_partition)
    return future
