"""Upkeep: flush rounds, checkpoints, retention, healing, compaction, scrubbing.

BrokerServer starts and cancels the loops; no handler calls them. They touch hosted partitions,
their logs and the log directories. ``__main__`` takes the budget of file descriptors from here.
"""
