"""The synchronous admin client."""

from collections.abc import Sequence
from typing import Any

from tidemark.client.admin.admin import Admin as AsyncAdmin
from tidemark.client.config import AdminConfig
from tidemark.client.sync.loop import SyncClient, blocking


class Admin(SyncClient[AsyncAdmin]):
    """``tidemark.client.Admin`` without ``await``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: AdminConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: AsyncAdmin(bootstrap_servers, config, **settings), name="tidemark-admin"
        )

    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)

    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)

    delete_records = blocking(AsyncAdmin.delete_records)
    list_offsets = blocking(AsyncAdmin.list_offsets)

    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    replica_bounds = blocking(AsyncAdmin.replica_bounds)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)

    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)

    describe_share_groups = blocking(AsyncAdmin.describe_share_groups)
    list_share_group_offsets = blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AsyncAdmin.delete_share_group_offsets)

    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    open_transactions = blocking(AsyncAdmin.open_transactions)

    describe_users = blocking(AsyncAdmin.describe_users)
    set_passwords = blocking(AsyncAdmin.set_passwords)
    delete_users = blocking(AsyncAdmin.delete_users)

    describe_quotas = blocking(AsyncAdmin.describe_quotas)
    alter_quotas = blocking(AsyncAdmin.alter_quotas)
    remove_quotas = blocking(AsyncAdmin.remove_quotas)

    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
