"""Share groups (KIP-932): consumers that share the records of a partition, and acknowledge each.

``ShareConsumer`` is the public class. The rules of the protocol are pure: ``ShareMembership`` (the
group), ``ShareSession`` (fetches from one broker) and ``Deliveries`` (acquired records, and their
acknowledgements). ``ShareFetcher`` and ``ShareGroup`` send the requests.

Called by applications, and by `tidemark.client.sync`. May use `tidemark.client.wire` and, of
`tidemark.client.consumer`, the decoding of batches.
"""
