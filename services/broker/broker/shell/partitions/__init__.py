"""Partitions: appends to and reads of the partitions that this broker hosts.

Called by the handlers of Kafka's APIs and of gRPC, by the group coordinator and by replication.
It touches partitions, their logs, the parked requests that an append releases, and the health of
the log directories; it imports no listener, no handler and no other service.
"""
