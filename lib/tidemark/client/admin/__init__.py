"""Administration: topics, configurations, groups, transactions, reassignments and log directories.

``Admin`` is the public class; `groups` and `transactions` hold its methods for those resources and
`calls` the retries. `requests` builds requests and `answers` and `group_answers` read responses, as
pure functions over the types of `types` and `group_types`.

Called by applications, by the command line and by `tidemark.client.sync`. May use
`tidemark.client.wire` and the offset types of `tidemark.client.consumer`; imports neither producers
nor transactional producers.
"""
