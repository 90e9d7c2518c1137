"""A real broker under measurement: ZooKeeper, one controller, one broker, each its own process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout


class BrokerUnderTest:
    """Where it is, and its topics."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.member = cluster.layout.member("broker-1")

    @property
    def port(self) -> int:
        """Of its Kafka listener."""
        return self.member.ports["client"]

    @property
    def pid(self) -> int:
        """Of its process now."""
        return self.cluster.pid("broker-1")

    @property
    def data(self) -> Path:
        """Its log directory."""
        return self.cluster.layout.data_path("broker-1")

    def admin(self) -> AdminClient:
        """librdkafka's."""
        return AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create and wait."""
        wanted = NewTopic(name, partitions, 1, config=dict(configs or {}))
        admin = self.admin()  # lives until its futures are done
        for made in admin.create_topics([wanted]).values():
            made.result(30)

    def delete_topic(self, name: str) -> None:
        """Delete and wait; its files go later."""
        admin = self.admin()
        for gone in admin.delete_topics([name]).values():
            gone.result(30)

    def alter_topic(self, name: str, key: str, value: str) -> None:
        """Set one key of a topic's configuration and wait."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin = self.admin()
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(30)

    def stored_bytes(self, topic: str) -> int:
        """Of all its segments."""
        return sum(path.stat().st_size for path in self.segments(topic))

    def segments(self, topic: str) -> list[Path]:
        """The .log files of a topic."""
        return sorted(self.data.glob(f"{topic}-*/*.log"))


@contextmanager
def broker(
    directory: Path,
    overrides: Mapping[str, object] | None = None,
    *,
    cluster_type: type[DevCluster] = DevCluster,
) -> Iterator[BrokerUnderTest]:
    """A cluster of one broker, stopped at the end."""
    layout = Layout.on_free_ports(directory, brokers=1, controllers=1)
    cluster = cluster_type(layout, overrides={"broker": dict(overrides or {})})
    try:
        cluster.start()
        yield BrokerUnderTest(cluster)
    finally:
        cluster.stop()
