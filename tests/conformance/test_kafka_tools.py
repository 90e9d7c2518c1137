"""Kafka's own command line tools, unmodified, against a cluster: what they end with, and the lines
that scripts look for. Run by ``make conformance``.
"""

import json
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.java_programs import JavaPrograms, build
from conformance.kafka_tools import KafkaTools, kafka_tools
from e2e.clusters import Cluster, started_cluster
from tidemark.cli.dev.layout import HOST
from tidemark.kafka.apis import APIS, INTERNAL_APIS, ApiKey
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.feature("Y01")]

BROKERS = (1, 2)
BROKER = {
    "group.initial.rebalance.delay.ms": 100,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
}
CONSUMED = "org_apache_kafka_consumer_fetch_manager_records_consumed_total"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    build()
    own = started_cluster(
        tmp_path_factory.mktemp("tools"),
        brokers=len(BROKERS),
        txn_coordinators=1,
        share_coordinators=1,
        overrides={"broker": BROKER},
    )
    yield own
    own.end()


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build()


@pytest.fixture(scope="module")
def tools(programs: JavaPrograms, cluster: Cluster) -> Iterator[KafkaTools]:
    with kafka_tools(programs, cluster.bootstrap) as running:
        yield running


@pytest.fixture
def name() -> str:
    """For topics and groups of one test."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(tools: KafkaTools, name: str) -> str:
    """One of two partitions and two replicas, with three records in one of them."""
    size = ("--partitions", "2", "--replication-factor", "2")
    assert tools("kafka-topics", "--create", "--topic", name, *size).status == 0
    assert tools("kafka-console-producer", "--topic", name, stdin="a\nb\nc\n").status == 0
    return name


def test_topics_are_made_described_altered_and_deleted(tools: KafkaTools, name: str) -> None:
    here = ("--topic", name)
    wanted = ("--partitions", "2", "--replication-factor", "2", "--config", "retention.ms=9000")
    made = tools("kafka-topics", "--create", *here, *wanted)
    assert (made.status, made.lines()) == (0, [f"Created topic {name}."])
    again = tools("kafka-topics", "--create", *here)
    assert (again.status, f"Topic '{name}' already exists." in again.out) == (1, True)
    assert name in tools("kafka-topics", "--list").lines()
    head, *partitions = tools("kafka-topics", "--describe", *here).lines()
    assert "PartitionCount: 2\tReplicationFactor: 2\tConfigs: retention.ms=9000" in head
    assert [line.count("Leader: ") for line in partitions] == [1, 1]
    assert tools("kafka-topics", "--alter", *here, "--partitions", "3").status == 0
    assert len(tools("kafka-topics", "--describe", *here).lines()) == 4
    for problem in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert tools("kafka-topics", "--describe", problem, *here).lines() == []
    assert tools("kafka-topics", "--delete", *here).status == 0
    gone = tools("kafka-topics", "--describe", *here)
    assert (gone.status, f"Topic '{name}' does not exist as expected" in gone.out) == (1, True)


def consumed(tools: KafkaTools, topic: str, group: str, count: int = 3) -> list[str]:
    """So many records of a topic, read by a group."""
    where = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count))
    done = tools("kafka-console-consumer", *where)
    assert done.status == 0, done.error
    assert f"Processed a total of {count} messages" in done.error
    return done.lines()


def test_records_are_written_read_found_and_deleted(
    tools: KafkaTools, topic: str, tmp_path: Path
) -> None:
    assert consumed(tools, topic, topic) == ["a", "b", "c"]
    found = dict(
        line.rsplit(":", 1) for line in tools("kafka-get-offsets", "--topic", topic).lines()
    )
    assert sorted(found.values()) == ["0", "3"]
    partition = next(int(key[-1]) for key, end in found.items() if end == "3")
    offset = {"topic": topic, "partition": partition, "offset": 2}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": [offset]}))
    deleted = tools("kafka-delete-records", "--offset-json-file", str(file))
    assert deleted.lines()[-1] == f"partition: {topic}-{partition}\tlow_watermark: 2"
    earliest = tools("kafka-get-offsets", "--topic", topic, "--time", "earliest").lines()
    assert f"{topic}:{partition}:2" in earliest
    options = ("--num-records", "5", "--producer-acks", "all", "--record-size", "10")
    latency = tools("kafka-e2e-latency", "--topic", topic, *options)
    assert (latency.status, "Percentiles: 50th = " in latency.out) == (0, True)


def test_groups_are_described_reset_and_deleted(tools: KafkaTools, topic: str) -> None:
    group = ("--group", topic)
    # Of a partition that gave it no record the tool may end without a position to commit.
    with_keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    keyed = tools("kafka-console-producer", "--topic", topic, *with_keys, stdin="a:to 0\nd:to 1\n")
    assert keyed.status == 0, keyed.error
    consumed(tools, topic, topic, 5)
    assert topic in tools("kafka-consumer-groups", "--list").lines()
    assert topic in tools("kafka-groups", "--list").out
    described = tools("kafka-consumer-groups", "--describe", *group)
    assert f"Consumer group '{topic}' has no active members." in described.error
    lag = [(row["CURRENT-OFFSET"], row["LAG"]) for row in described.rows()]
    assert sorted(lag) == [("1", "0"), ("4", "0")]
    (state,) = tools("kafka-consumer-groups", "--describe", "--state", *group).rows()
    assert (state["GROUP"], "Empty" in state.values()) == (topic, True)
    back = ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    reset = tools("kafka-consumer-groups", *back, *group)
    assert [row["NEW-OFFSET"] for row in reset.rows()] == ["0", "0"]
    deleted = tools("kafka-consumer-groups", "--delete", *group).out
    assert f"Deletion of requested consumer groups ('{topic}') was successful." in deleted
    gone = tools("kafka-consumer-groups", "--describe", *group)
    assert f"Group {topic} not found." in gone.out + gone.error


@pytest.mark.parametrize(
    ("kind", "entity", "setting", "shown"),
    [
        ("topics", "", "retention.ms=9000", "DYNAMIC_TOPIC_CONFIG:retention.ms=9000"),
        ("brokers", "1", "log.cleaner.backoff.ms=20000", "DYNAMIC_BROKER_CONFIG:log.cleaner"),
        ("groups", "g", "consumer.session.timeout.ms=50000", "DYNAMIC_GROUP_CONFIG:consumer."),
        ("users", "alice", "producer_byte_rate=1000", "producer_byte_rate=1000.0"),
        ("clients", "c", "consumer_byte_rate=1000", "consumer_byte_rate=1000.0"),
        ("ips", "127.0.0.9", "connection_creation_rate=10", "connection_creation_rate=10.0"),
        ("client-metrics", "m", "metrics=x.", "DYNAMIC_CLIENT_METRICS_CONFIG:metrics=x."),
    ],
)
def test_settings_of_every_kind_are_set_shown_and_removed(
    tools: KafkaTools, topic: str, kind: str, entity: str, setting: str, shown: str
) -> None:
    named = ("--entity-type", kind, "--entity-name", entity or topic)
    made = tools("kafka-configs", "--alter", *named, "--add-config", setting)
    assert (made.status, made.out.startswith("Completed updating config for ")) == (0, True)
    described = ("kafka-configs", "--describe", *named)
    wait_for(lambda: shown in tools(*described).out, "the setting is there")
    removed = tools("kafka-configs", "--alter", *named, "--delete-config", setting.split("=")[0])
    assert removed.status == 0
    wait_for(lambda: shown not in tools(*described).out, "the setting is gone")


def exported(cluster: Cluster, metric: str) -> list[str]:
    """Samples of a metric at every broker's /metrics."""
    lines: list[str] = []
    for broker in BROKERS:
        port = cluster.layout.member(f"broker-{broker}").ports["ops"]
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=PATIENCE_S) as page:
            lines += str(page.read(), "utf-8").splitlines()
    return [line for line in lines if line.startswith(f"{metric}{{")]


@pytest.mark.feature("AD90", "AD91")
def test_a_subscription_to_metrics_makes_a_java_client_push(
    tools: KafkaTools, cluster: Cluster, topic: str
) -> None:
    named = ("--name", topic)
    match = f"client_id={topic}.*,client_software_name=apache-kafka-java"
    made = ("--metrics", "org.apache.kafka.consumer.", "--interval", "100", "--match", match)
    altered = tools("kafka-client-metrics", "--alter", *named, *made)
    assert (altered.status, altered.lines()) == (0, [f"Altered client metrics config for {topic}."])
    wait_for(lambda: topic in tools("kafka-client-metrics", "--list").lines(), "it is known")
    described = tools("kafka-client-metrics", "--describe", *named).lines()
    settings = ["interval.ms=100", f"match={match}", "metrics=org.apache.kafka.consumer."]
    assert described == [f"Client metrics configs for {topic} are:", *settings]
    client = ("--command-property", f"client.id={topic}-1", "--from-beginning")
    read = ("--topic", topic, "--timeout-ms", "3000", *client)
    assert tools("kafka-console-consumer", *read).lines() == ["a", "b", "c"]
    (sample,) = [line for line in exported(cluster, CONSUMED) if 'topic="' not in line]
    assert f'client_id="{topic}-1"' in sample
    assert 'client_software_name="apache-kafka-java"' in sample
    assert sample.endswith(" 3.0")
    deleted = tools("kafka-client-metrics", "--delete", *named)
    assert (deleted.status, deleted.lines()) == (0, [f"Deleted client metrics config for {topic}."])
    wait_for(lambda: topic not in tools("kafka-client-metrics", "--list").out, "it is gone")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (("--interval", "1"), "interval must be between 100 and 3600000 (1 hour)"),
        (("--match", "rack=a"), "Illegal client matching pattern: rack=a"),
    ],
)
@pytest.mark.feature("AD90")
def test_a_subscription_is_validated_as_by_kafka(
    tools: KafkaTools, setting: tuple[str, str], words: str
) -> None:
    refused = tools("kafka-client-metrics", "--alter", "--name", "refused", *setting)
    assert (refused.status, words in refused.out) == (1, True)


def test_replicas_move_and_leaders_are_elected(
    tools: KafkaTools, topic: str, tmp_path: Path
) -> None:
    moves = [{"topic": topic, "partition": one, "replicas": [2, 1]} for one in (0, 1)]
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    given = ("--reassignment-json-file", str(file))
    executed = tools("kafka-reassign-partitions", *given, "--execute")
    assert "Successfully started partition reassignments" in executed.out
    verify = ("kafka-reassign-partitions", *given, "--verify")
    done = [f"Reassignment of partition {topic}-{one} is completed." for one in (0, 1)]
    wait_for(lambda: set(done) <= set(tools(*verify).lines()), "the replicas moved")
    assert "No partition reassignments found." in tools("kafka-reassign-partitions", "--list").out
    chosen = ("--election-type", "preferred", "--topic", topic, "--partition")
    outcomes = "".join(tools("kafka-leader-election", *chosen, one).out for one in ("0", "1"))
    assert "leader election" in outcomes or "Valid replica already elected" in outcomes
    partitions = tools("kafka-topics", "--describe", "--topic", topic).lines()[1:]
    assert ["Leader: 2\tReplicas: 2,1" in line for line in partitions] == [True, True]
    log_dirs = tools("kafka-log-dirs", "--describe", "--topic-list", topic).lines()[-1]
    found = json.loads(log_dirs)["brokers"]
    in_all = [sum(len(of["partitions"]) for of in one["logDirs"]) for one in found]
    assert in_all == [2, 2], "a broker may have two directories"


@pytest.mark.feature("AD92")
def test_replicas_move_between_log_directories(
    tools: KafkaTools, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Broker 1 has a second directory from here on."""
    first, second = (str(cluster.data_directory(1)), str(tmp_path / "second"))
    cluster.configure("broker-1", {**BROKER, "log.dirs": f"{first},{second}"})
    cluster.restart("broker-1")
    moves = [
        {"topic": topic, "partition": one, "replicas": [1], "log_dirs": [second]} for one in (0, 1)
    ]
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    given = ("--reassignment-json-file", str(file))
    rate = ("--replica-alter-log-dirs-throttle", "100000000")
    executed = tools("kafka-reassign-partitions", *given, "--execute", *rate)
    started = f"Successfully started moving log directory to {second} for replica {topic}-"
    assert executed.out.count(started) == 2, executed
    verify = ("kafka-reassign-partitions", *given, "--verify")
    done = f"Reassignment of replica {topic}-1-1 completed successfully."
    wait_for(lambda: done in tools(*verify).out, "the replicas moved")
    log_dirs = tools("kafka-log-dirs", "--describe", "--topic-list", topic).lines()[-1]
    (broker,) = [one for one in json.loads(log_dirs)["brokers"] if one["broker"] == 1]
    found = {one["logDir"]: len(one["partitions"]) for one in broker["logDirs"]}
    assert found == {first: 0, second: 2}


def test_transactions_and_share_groups_are_listed(tools: KafkaTools, topic: str) -> None:
    listed = tools("kafka-transactions", "list")
    assert (listed.status, listed.lines()[0].split("\t")[0]) == (0, "TransactionalId")
    unknown = tools("kafka-transactions", "describe", "--transactional-id", topic)
    assert (unknown.status, "the ID could not be found" in unknown.error) == (1, True)
    producers = [
        tools("kafka-transactions", "describe-producers", "--topic", topic, "--partition", one)
        for one in ("0", "1")
    ]
    assert [done.status for done in producers] == [0, 0]
    assert sorted(len(done.lines()) for done in producers) == [1, 2]
    hanging = tools("kafka-transactions", "find-hanging", "--broker-id", "1")
    assert (hanging.status, len(hanging.lines())) == (0, 1)
    shares = tools("kafka-share-groups", "--list")
    assert (shares.status, shares.lines()) == (0, [])
    gone = tools("kafka-share-groups", "--describe", "--group", topic)
    assert f"Share group {topic} not found." in gone.out


def test_the_cluster_describes_itself(tools: KafkaTools, cluster: Cluster) -> None:
    status = tools("kafka-metadata-quorum", "describe", "--status")
    assert status.lines()[0].startswith("ClusterId:")
    (cluster_id,) = status.lines()[0].split()[1:]
    where = ("--bootstrap-server", cluster.bootstrap)
    assert tools.plain("kafka-cluster", "cluster-id", *where).lines() == [
        f"Cluster ID: {cluster_id}"
    ]
    endpoints = tools.plain("kafka-cluster", "list-endpoints", *where).rows()
    assert [(one["ID"], one["STATE"]) for one in endpoints] == [
        ("1", "unfenced"),
        ("2", "unfenced"),
    ]
    replication = tools("kafka-metadata-quorum", "describe", "--replication").rows()
    assert [row["Status"] for row in replication][:1] == ["Leader"]
    features = tools("kafka-features", "describe").lines()
    assert any(line.startswith("Feature: transaction.version") for line in features)
    versions = tools("kafka-broker-api-versions").out
    assert versions.count("UNSUPPORTED") > 0
    for api in set(ApiKey) - INTERNAL_APIS:
        assert f"({api.value}): {APIS[api].advertised_min}" in versions, api.name
    acls = tools("kafka-acls", "--list")
    assert (acls.status, "No Authorizer is configured." in acls.out) == (1, True)


def test_a_segment_and_its_indexes_are_dumped(
    tools: KafkaTools, cluster: Cluster, name: str
) -> None:
    settings = ("--config", "segment.bytes=1048576", "--config", "index.interval.bytes=1")
    made = tools("kafka-topics", "--create", "--topic", name, "--partitions", "1", *settings)
    assert made.status == 0
    lines = "".join(f"{number}:{'x' * 100_000}\n" for number in range(30))
    assert tools("kafka-console-producer", "--topic", name, stdin=lines).status == 0
    first = "00000000000000000000"
    (segment, *_) = sorted(cluster.layout.directory.rglob(f"{name}-0/{first}.log"))
    dumped = tools.plain("kafka-dump-log", "--files", str(segment), "--print-data-log")
    assert "Log starting offset: 0" in dumped.out
    assert "isvalid: true" in dumped.out
    assert "| offset: 0 " in dumped.out
    index = tools.plain("kafka-dump-log", "--files", str(segment.with_suffix(".index")))
    assert (index.status, "offset: " in index.out) == (0, True)
    for suffix in (".index", ".timeindex"):
        file = str(segment.with_suffix(suffix))
        checked = tools.plain("kafka-dump-log", "--files", file, "--index-sanity-check")
        assert (checked.status, "passed sanity check." in checked.out) == (0, True)
