"""Storage of the broker: logs on disks, synchronous, behind ``tidemark.storage.disk.Disk``.

``LogManager`` has the logs of one log directory. ``Log`` is that of one partition: a chain of
segments with indexes, leader epochs and the history of producers. Recovery, retention, compaction
and the scrubber work on logs. The shell calls storage, in a thread where a call may wait for the
disk.
"""
