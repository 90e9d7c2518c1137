"""Share groups for the tests of the console."""

from e2e.clusters import Cluster
from tidemark.client import AlterConfig, ConfigResource, sync
from waiting import wait_for


def configure(cluster: Cluster, group: str, **configs: str) -> None:
    """Set configs of a group, which need not exist; their names have underscores for dots."""
    changes = [AlterConfig(key.replace("_", "."), value) for key, value in configs.items()]
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_configs({ConfigResource("group", group): changes})


def read_as_share_group(
    cluster: Cluster,
    group: str,
    topic: str,
    *,
    count: int = 1,
    **configs: str,
) -> None:
    """Read the topic as a group, from its start, and accept at least ``count`` records.
    ``configs`` are those of the group, with underscores for dots.
    """
    configure(cluster, group, share_auto_offset_reset="earliest", **configs)
    with sync.ShareConsumer(
        cluster.bootstrap, group_id=group, share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe([topic])
        while count > 0:
            records = wait_for(lambda: consumer.poll(timeout_ms=500), "the group gets records")
            for record in records:
                consumer.acknowledge(record, "accept")
            consumer.commit_sync()
            count -= len(records)
