"""Metrics that clients push (KIP-714): which clients push what and when, and the last of each."""
