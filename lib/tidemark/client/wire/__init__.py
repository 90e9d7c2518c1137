"""Connections to a cluster: metadata, transports for Kafka's protocol and gRPC, and sessions.

``Session`` gives a client its transport, its metadata and its task group. ``Transport`` is the
protocol that producers and consumers are written against; ``KafkaTransport`` and ``GrpcTransport``
implement it. ``Coordinator`` finds a group's or transactional id's coordinator and retries calls.

Called by every other package of the client. May use settings, errors, deadlines, Kafka's codec and
the generated gRPC code; imports no other package of the client. gRPC is imported on first use, so
that clients over Kafka's protocol start without it.
"""
