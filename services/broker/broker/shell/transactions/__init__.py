"""Transactions: requests to the transaction coordinators, and their effects on partitions.

Handlers relay requests of producers, verify transactional batches and append markers through this
room; producer ids come from it. Modules here may touch the coordinators' client, the controller's
client, the metadata cache and partitions.
"""
