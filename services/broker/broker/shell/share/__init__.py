"""Share-partitions of the partitions that this broker leads, on the event loop.

Handlers of ShareFetch and ShareAcknowledge call SharePartitions; BrokerServer runs it. Decisions
are in ``core/share``; modules here read the log, call the share-coordinators, keep waiting fetches
and the timer, and follow leadership.
"""
