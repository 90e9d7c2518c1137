"""Cluster: this broker as a member: registration and lease, requests to the controller, hand-over.

BrokerService runs membership, lease and hand-over; handlers use the relay to the controller and the
creation of topics. It touches the controller's client, the ZooKeeper session and the metadata; it
imports no partition, no listener and no handler.
"""
