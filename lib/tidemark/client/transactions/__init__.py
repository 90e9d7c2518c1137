"""Transactions: one producer's, and those that writers in several processes share.

``TransactionalProducer`` follows Kafka's model: one producer, one transaction at a time.
``Transactions`` opens multi-writer transactions, whose handles travel between processes.
``SinkBatches`` commits the batches of a streaming query exactly once on top of them.

Called by applications and by `tidemark.client.sync`. Uses producers to write records, the offsets
and group types of `tidemark.client.consumer`, and `tidemark.client.wire` to call the coordinator.
"""
