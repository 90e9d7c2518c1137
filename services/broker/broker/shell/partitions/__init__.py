"""Partitions: the partitions that this broker hosts, and the ways to find, append and read them.

Called by the handlers of Kafka's APIs and of gRPC, by groups, transactions, replication and upkeep.
Modules here may touch partitions, their logs, parked requests, worker processes that walk records,
and the state of log directories; they import no other room.
"""
