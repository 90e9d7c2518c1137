"""Replication: serving followers, following leaders, and changes of the ISR.

The Fetch handler calls ReplicaReader; hosting starts and stops fetchers through ReplicationManager;
IsrSender and ReplicaReports send proposals and reports to the controller. Modules here may touch
partitions and their logs, parked requests, the state of log directories and the broker's
registration.
"""
