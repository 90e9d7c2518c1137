"""Codecs of Kafka's protocol: the hot APIs by hand, all others from a table. Pure."""
