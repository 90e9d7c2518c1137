"""Bytes of batches, of records, and of the records in internal topics, as Kafka has them. Pure."""
