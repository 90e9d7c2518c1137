"""Runtime of every service: all that touches the machine or the network.

Event loop, disks, channels, ZooKeeper sessions, the metadata cache, the shard runtime,
configuration, logs and metrics. The shells of the services and the command line use it; cores do
not.
"""
