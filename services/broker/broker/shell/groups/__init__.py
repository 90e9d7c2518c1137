"""Groups: the group coordinator, one shard for each partition of __consumer_offsets led here.

Handlers of group APIs call Groups; BrokerServer runs it. Modules here may touch the partitions that
hold the shards' logs, and ask the transaction coordinators about transactional offset commits.
"""
