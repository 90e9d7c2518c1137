"""Topics for consumers that read from a follower, and which broker served them."""

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.clusters import Cluster
from prometheus_client.parser import text_string_to_metric_families
from waiting import PATIENCE_S

VALUE = b"x" * 1_000


def led_by_one(cluster: Cluster, topic: str) -> str:
    """A topic that broker 1 leads and broker 2 follows."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, num_partitions=1, replica_assignment=[[1, 2]])
    admin.create_topics([new])[topic].result(PATIENCE_S)
    return topic


def write(cluster: Cluster, topic: str, records: int, **settings: object) -> None:
    """Write records with their number as key."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **settings})
    for number in range(records):
        producer.produce(topic, VALUE, key=b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0


def bytes_out(cluster: Cluster, broker: int, topic: str) -> int:
    """Bytes of records that a broker sent to consumers."""
    page = cluster.ops(f"broker-{broker}", "/metrics")
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(page)
        if family.name == "kafka_server_brokertopicmetrics_bytesout"
        for sample in family.samples
        if sample.labels.get("topic") == topic
    )
