"""Cluster: the broker as a member of the cluster, and its requests to the controller.

BrokerService runs membership, lease and controlled shutdown. Handlers call the relay to the
controller and the creation of topics. Modules here may touch the controller's client, the ZooKeeper
session and the metadata cache; they import no other room.
"""
