"""Upkeep: loops that no request starts, over the logs of this broker.

Flush rounds, checkpoints, retention, repair, compaction and scrubbing. BrokerServer starts and
cancels the loops; no handler calls them. Modules here may touch hosted partitions, their logs, the
log directories and worker processes. ``__main__`` takes the budget of file descriptors from here.
"""
