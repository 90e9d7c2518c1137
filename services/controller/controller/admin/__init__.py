"""Administration of the cluster: plain async functions that return pydantic models.

REST and the console call them. The first argument is an `AdminContext`: the caller, the metadata
image of this controller, and the ways to brokers and coordinators. Metadata comes from the image;
figures that only brokers have come over Kafka's protocol or gRPC, with a deadline for each node, a
bounded number of calls, and an error for each item that is missing.
"""
