"""Replication: serving followers, following leaders, changes of the ISR.

The Fetch handler calls ReplicaReader; hosting starts and stops fetchers through ReplicationManager;
IsrSender and ReplicaReports report to the controller. It touches partitions and their logs, the
parked requests that progress releases, and the health of the log directories.
"""
