"""Parts that all coordinator services share: a replica, the lives of its shards, and its server.

A service adds its shard (``core``), its requests on the wire, and the effects of its decisions.
"""
