"""Metrics that clients push: their decoder, which runs in a worker process, and their receiver."""
