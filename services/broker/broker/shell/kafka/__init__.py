"""Kafka: the handlers of Kafka's APIs, one module for each.

The router calls a handler with a request, and ``apis.py`` has bound it to the objects that it uses.
Handlers may touch partitions, replication, transactions, groups, the relay to the controller and
the metadata cache; only ``apis.py`` is given the rooms of the broker.
"""
