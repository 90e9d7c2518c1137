"""Shell of the txn-coordinator: the lives of shards, markers, and gRPC.

It joins the cluster, serves the shards that the metadata assigns to this replica, sends markers to
brokers, and answers requests. Wire formats are read and written in ``wire_mapping``.
"""
