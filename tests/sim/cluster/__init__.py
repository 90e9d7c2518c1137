"""Whole services on simulated machines: brokers and controllers as they are, but for sockets,
threads, gRPC channels and ZooKeeper's client, which the simulator stands in for.
"""
