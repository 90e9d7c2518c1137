"""LogMoves: effects of a flush round or of retention that moves an end of a log."""

from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot


class LogMoves:
    """Brings the bounds of a log to its partition, and wakes the requests that wait for them."""

    def __init__(self, parked: ParkingLot) -> None:
        self._parked = parked

    def synced(self, hosted: HostedPartition, end: int) -> None:
        """Note that a flush round reached ``end`` in this log."""
        before, move = hosted.partition.high_watermark, hosted.move
        if move is not None:
            end = move.plan.counted_end(end, move.future.synced_end)
        gained_bytes = hosted.partition.synced(end)
        if hosted.partition.high_watermark != before:
            self._parked.moved(hosted, gained_bytes)

    def log_start_moved(self, hosted: HostedPartition) -> None:
        """Note that retention or DeleteRecords moved the log's start."""
        if hosted.log.log_start > hosted.partition.log_start:
            hosted.partition.log_start_moved(hosted.log.log_start)
            self._parked.has_news(hosted)
