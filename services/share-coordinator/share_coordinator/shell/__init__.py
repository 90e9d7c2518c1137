"""Shell of the share-coordinator: the lives of shards, calls to brokers, and gRPC.

It joins the cluster, serves the shards that the metadata assigns to this replica, and answers
requests. Wire formats are read and written in ``wire_mapping``.
"""
