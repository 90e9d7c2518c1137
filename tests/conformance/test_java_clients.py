"""Kafka's own Java clients, unmodified, against a cluster: groups of both protocols, the
AdminClient, and transactions (version 2). Run by ``make conformance``.

Each program of java/ tells what it saw; here is what it should have seen.
"""

import uuid
from collections.abc import Iterator

import pytest
from broker.read_replica_config import RACK_AWARE
from conformance.java_programs import JavaPrograms, build
from e2e.clusters import Cluster
from e2e.follower_reads import VALUE, bytes_out, led_by_one, write
from e2e.transactional_clients import transactional_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK = "null"
"""What a Java client answers when there is nothing to say: it worked."""


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build()


@pytest.fixture(scope="module")
def cluster(programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nobody hurts it. Started only once there is something to run."""
    quick = {"group.initial.rebalance.delay.ms": 100, "replica.selector.class": RACK_AWARE}
    directory = tmp_path_factory.mktemp("java")
    with transactional_cluster(
        directory, txn_coordinators=2, overrides={"broker": quick}
    ) as running:
        yield running


@pytest.fixture
def name() -> str:
    """For topics, groups and transactional ids of one test."""
    return f"j-{uuid.uuid4().hex[:8]}"


@pytest.mark.feature("A08", "A09", "A10", "A11", "E02", "E04", "E09", "Y01")
@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_a_group_shares_commits_and_resumes(
    programs: JavaPrograms, cluster: Cluster, name: str, protocol: str
) -> None:
    by_pattern = {"by pattern": "4"} if protocol == "consumer" else {}
    assert programs.facts("Groups", cluster.bootstrap, name, protocol) == {
        "written to 200": "200",
        "alone": "4",
        "read before the second": "true",
        "shared": "2 and 2",
        "left alone": "4",
        "values": "200",
        "distinct": "200",
        "written to 220": "20",
        "resumed": "20",
        "committed": "220",
        "static member again": "4",
        **by_pattern,
    }


@pytest.mark.feature("A09", "A11", "Y01")
@pytest.mark.parametrize("assignor", ["range", "cooperative"])
def test_a_live_group_changes_its_protocol_and_back(
    programs: JavaPrograms, cluster: Cluster, name: str, assignor: str
) -> None:
    assert programs.facts("Migration", cluster.bootstrap, name, assignor) == {
        "both classic": "classic 0",
        "member 0 consumer": "consumer 1",
        "member 1 consumer": "consumer 2",
        "member 0 classic": "consumer 1",
        "member 1 classic": "classic 0",
        "values": "200",
        "distinct": "200",
        "lost": "0",
        "committed": "200",
    }


@pytest.mark.feature("A04", "Y01")
def test_the_admin_client_manages_topics(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    assert programs.facts("Administration", cluster.bootstrap, name) == {
        "nodes": "3",
        "controller is a node": "true",
        "clusterId": "true",
        "transaction.version": "2",
        "group.version": "1",
        "finalized epoch": "true",
        "createTopics": "3",
        "created with": "86400000",
        "createTopics again": "TopicExistsException",
        "listTopics": "true",
        "describeTopics": "3/3 3/3 3/3",
        "createPartitions": "4",
        "earliest": "0",
        "latest": "10",
        "maxTimestamp": "9",
        "forTimestamp": "4",
        "deleteRecords": "4",
        "earliest after deleteRecords": "4",
        "incrementalAlterConfigs": OK,
        "describeConfigs": "123456",
        "a setting that does not exist": "InvalidConfigurationException",
        "listConfigResources": "true",
        "describeLogDirs": "3",
        "alterPartitionReassignments": OK,
        "listPartitionReassignments": "0",
        "electLeaders": "true",
        "deleteTopics": OK,
    }


def facts_of_a_group(protocol: str, described: str, listed: str) -> dict[str, str]:
    return {
        f"{protocol} described": described,
        f"{protocol} listed": listed,
        f"{protocol} offsets": "1note",
        f"{protocol} delete while alive": "GroupNotEmptyException",
        f"{protocol} alter while alive": "UnknownMemberIdException",
        f"{protocol} alter": OK,
        f"{protocol} altered": "0",
        f"{protocol} deleteOffsets": OK,
        f"{protocol} offsets deleted": "none",
    }


@pytest.mark.feature("D05", "E14", "Y01")
def test_the_admin_client_manages_groups(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    consumer = "Stable Consumer uniform reader 2", "Consumer consumer Stable"
    assert programs.facts("GroupAdministration", cluster.bootstrap, name) == {
        **facts_of_a_group("classic", "Stable Classic range reader 2", "Classic consumer Stable"),
        **facts_of_a_group("consumer", *consumer),
        "simple alter": OK,
        "simple offsets": "1",
        "simple listed": "true Empty",
        "simple delete": OK,
        "simple offsets deleted": "none",
        "unknown described": "GroupIdNotFoundException",
        "unknown deleted": "GroupIdNotFoundException",
        "static members": "1",
        "static member removed": OK,
        "static members left": "0",
    }


@pytest.mark.feature("L02", "L07", "M01", "M06", "Y01", "Y08")
def test_the_admin_client_looks_at_transactions_and_ends_them(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    assert programs.facts("TransactionAdministration", cluster.bootstrap, name) == {
        "described": f"Ongoing [{name}-0]",
        "timeout": "60000",
        "started": "true",
        "listed": "true",
        "listed by state": "true",
        "not listed by another state": "false",
        "not listed as long": "false",
        "listed by pattern": "true",
        "describeProducers": "0",
        "same epoch": "true",
        "latest committed": "0",
        "latest uncommitted": "1",
        "after commit": "CompleteCommit",
        "latest committed after commit": "2",
        "unknown": "TransactionalIdNotFoundException",
        "fenceProducers": OK,
        "commit of the fenced": "ProducerFencedException",
        "after fencing": "Empty",
        "abortTransaction": OK,
        "open after abort": "false",
        "values": f"[{name}-look]",
    }


@pytest.mark.feature("L01", "L02", "L03", "L04", "L05", "L08", "L09", "L10", "L11", "L12", "L13")
@pytest.mark.feature("M01", "M06", "N01", "N02", "Y01")
def test_transactions_commit_abort_and_fence(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    assert programs.facts("Transactions", cluster.bootstrap, name) == {
        "a commit raises the epoch": "true",
        "committed": "[a1, a2]",
        "uncommitted": "[a1, a2, a3, a4]",
        "committed elsewhere": "[b1]",
        "committed at last": "[a1, a2, a4]",
        "offset of a commit": "2",
        "offset of an abort": "2",
        "classic member's offset": "1",
        "classic member that left": "CommitFailedException",
        "classic offset stays": "1",
        "consumer member's offset": "1",
        "consumer member that left": "CommitFailedException",
        "consumer offset stays": "1",
        "the first instance": "ProducerFencedException",
        "after fencing": "[b1, of the second]",
        "the late commit": "ProducerFencedException",
        "after the timeout": "[b1, of the second]",
        "many": "80",
    }


@pytest.mark.feature("A06")
def test_a_consumer_reads_from_the_follower_in_its_rack(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    values = 50
    write(cluster, led_by_one(cluster, name), values)
    facts = programs.facts("NearReader", cluster.bootstrap, name, "rack-2", str(values))
    assert facts == {"values": "50", "preferred replica": "2"}
    assert bytes_out(cluster, 1, name) == 0
    assert bytes_out(cluster, 2, name) >= values * len(VALUE)
