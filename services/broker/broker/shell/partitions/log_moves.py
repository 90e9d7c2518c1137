"""LogMoves: what follows when a flush round or retention moves an end of a log."""

from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot


class LogMoves:
    """Brings the bounds of a log to its partition, and wakes what waits for them."""

    def __init__(self, parked: ParkingLot) -> None:
        self._parked = parked

    def synced(self, hosted: HostedPartition, end: int) -> None:
        """A flush round reached ``end`` in this log."""
        before = hosted.partition.high_watermark
        gained_bytes = hosted.partition.synced(end)
        if hosted.partition.high_watermark != before:
            self._parked.moved(hosted, gained_bytes)

    def log_start_moved(self, hosted: HostedPartition) -> None:
        """Retention or DeleteRecords moved the log's start."""
        if hosted.log.log_start > hosted.partition.log_start:
            hosted.partition.log_start_moved(hosted.log.log_start)
            self._parked.has_news(hosted)
