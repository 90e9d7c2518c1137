"""Groups: the group coordinator: shards of the partitions of __consumer_offsets led here.

Handlers of the group APIs call Groups; BrokerServer runs it. A shard's log is a partition of this
broker, to which GroupLog appends; checks of transactional offsets ask the transaction coordinators.
"""
