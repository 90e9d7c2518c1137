"""Clients outside by ports of the nodes and by load balancers; the zone of a node as rack."""

import json
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from k8s.cluster_waiting import wait_for
from k8s.release import Client, Release, run, write_values
from k8s.test_install import consume, produce
from k8s.test_nodes import broker, number_of
from lab.settings import environment, node_address
from waiting import PATIENCE_S

PORT = 9095
BALANCED = [str(IPv4Address("10.154.0.1") + number) for number in range(2)]
"""Addresses that load balancers have for brokers: no machine has them."""
SMALL: dict[str, Any] = {
    "replication": {"factor": 2, "minInSyncReplicas": 1},
    "controller": {"replicas": 1},
    "txnCoordinator": {"replicas": 0},
    "shareCoordinator": {"replicas": 0},
    "zookeeper": {"replicas": 1},
    "rackAwareness": {"enabled": True},
}
MECHANISMS = {"listener.name.external.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN"}
BROKER: dict[str, Any] = {"replicas": 2, "storage": {"size": "1Gi"}, "config": MECHANISMS}
INSIDE = """
import pathlib, sys
from tidemark.client import sync
servers, mechanism = sys.argv[1:]
password = pathlib.Path("/etc/tidemark-super-user/password").read_text().strip()
login = {"sasl_username": "admin", "sasl_password": password, "sasl_mechanism": mechanism}
tls = {"security_protocol": "SASL_SSL", "ssl_ca_location": "/etc/tidemark-certificate/ca.crt"}
with sync.Producer(servers, delivery_timeout_ms=60_000, **login, **tls) as producer:
    print(producer.send("inside", b"value", partition=0))
"""


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A release of two brokers with ports of their nodes, which the level restricted forbids."""
    made = Release("edge", level="privileged")
    external = {"type": "HostPort", "port": PORT}
    path = tmp_path_factory.mktemp("edge") / "values.yaml"
    made.install(write_values(path, **SMALL, broker=BROKER, external=external))
    made.wait_ready()
    yield made
    made.uninstall()
    made.remove_data()


def brokers_of(client: Client) -> dict[int, str]:
    """Addresses of the brokers as a client finds them, by their ids."""
    found = AdminClient(client).list_topics(timeout=PATIENCE_S).brokers
    return {number: f"{each.host}:{each.port}" for number, each in found.items()}


def check_clients(release: Release, servers: list[str], topic: str) -> None:
    """Fail unless clients find these addresses, and produce to and consume from each broker."""
    client = {**release.client(), "bootstrap.servers": servers[0]}
    found = dict(enumerate(servers))
    wait_for(lambda: brokers_of(client) == found, lambda: str(brokers_of(client)))
    release.tidemark("topic", "create", topic, "--partitions", "4")
    leaders = AdminClient(client).list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    assert {each.leader for each in leaders.values()} == {0, 1}
    values = [str(number) for number in range(40)]
    produce({**client, "partitioner": "random"}, topic, values)
    assert sorted(consume(client, topic, topic, len(values)), key=int) == values


@pytest.mark.feature("KU09")
def test_each_broker_is_reached_by_a_port_of_its_node(edge: Release) -> None:
    pods = sorted(edge.pods("broker"), key=lambda pod: str(pod["metadata"]["name"]))
    servers = [f"{pod['status']['hostIP']}:{PORT}" for pod in pods]
    check_clients(edge, servers, "by-node")


def produced_inside(release: Release, mechanism: str) -> "subprocess.CompletedProcess[str]":
    """Produce at the listener CLIENT, in a pod of a controller."""
    server = f"{release.name}-bootstrap.{release.name}.svc.cluster.local:9092"
    argv = ["kubectl", "-n", release.name, "exec", f"{release.name}-controller-0", "--"]
    argv += ["python3", "-P", "-c", INSIDE, server, mechanism]
    return subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.feature("KU09")
def test_a_listener_has_mechanisms_of_its_own(edge: Release) -> None:
    servers = f"{edge.pods('broker')[0]['status']['hostIP']}:{PORT}"
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        client = {**edge.client(), "bootstrap.servers": servers, "sasl.mechanisms": mechanism}
        assert AdminClient(client).list_topics(timeout=PATIENCE_S).brokers
    edge.tidemark("topic", "create", "inside", "--if-not-exists")
    accepted = produced_inside(edge, "SCRAM-SHA-512")
    assert "inside" in accepted.stdout, accepted.stderr
    refused = produced_inside(edge, "PLAIN")
    assert refused.returncode != 0
    assert "UNSUPPORTED_SASL_MECHANISM" in refused.stderr


@pytest.mark.feature("KU10")
def test_the_rack_of_a_broker_is_the_zone_of_its_node(edge: Release) -> None:
    rows = json.loads(edge.tidemark("cluster", "brokers", "-o", "json"))
    zones = {}
    for pod in edge.pods("broker"):
        node = json.loads(run("kubectl", "get", "node", pod["spec"]["nodeName"], "-o", "json"))
        number = int(pod["metadata"]["name"].rpartition("-")[2])
        zones[number] = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    assert {row["broker"]: row["rack"] for row in rows} == zones
    assert len(set(zones.values())) == 2


@pytest.fixture
def balanced(edge: Release, tmp_path: Path) -> Iterator[list[str]]:
    """Addresses of brokers behind load balancers: this test is their controller, and routes each
    address to the node that has the broker.
    """
    servers = [f"{address}:{PORT}" for address in BALANCED]
    external = {"type": "LoadBalancer", "port": PORT, "addresses": servers}
    edge.install(write_values(tmp_path / "values.yaml", **SMALL, broker=BROKER, external=external))
    edge.wait_updated()
    routed = []
    try:
        for number, address in enumerate(BALANCED):
            service = f"{edge.name}-broker-{number}-external"
            status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}})
            patch = ("patch", "service", service, "--subresource", "status", "--type", "merge")
            edge.kubectl(*patch, "-p", status)
            node = node_address(number_of(broker(edge, number)))
            subprocess.run(["ip", "route", "add", f"{address}/32", "via", node], check=True)
            routed.append(address)
        yield servers
    finally:
        for address in routed:
            subprocess.run(["ip", "route", "del", f"{address}/32"], check=True)


@pytest.mark.feature("KU09")
def test_each_broker_is_reached_by_its_load_balancer(edge: Release, balanced: list[str]) -> None:
    check_clients(edge, balanced, "balanced")
