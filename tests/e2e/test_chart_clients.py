"""What the chart gives to clients, at a cluster of ``tidemark dev up --secure``: the program of
``helm test`` with the environment of its pod, and configurations of clients.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.clusters import START_SECONDS, Cluster
from helm.chart import named, rendered
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import ADMIN, SecureFiles
from tidemark.client import sync
from tidemark.client.admin.types import NewTopic
from tidemark.kubernetes.client_files import MOUNTED_AT, Addresses, client_files
from tidemark_spark.security import client_security, kafka_properties, kafka_security
from waiting import PATIENCE_S

pytestmark = pytest.mark.e2e

DEFAULT = Path(__file__).parents[1] / "helm/values/default.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    layout = Layout.on_free_ports(
        tmp_path_factory.mktemp("secure"),
        brokers=1,
        controllers=1,
        txn_coordinators=1,
        share_coordinators=1,
        is_secure=True,
    )
    cluster = Cluster(layout)
    try:
        cluster.start(START_SECONDS)
        yield cluster
    finally:
        cluster.end()


def files_of(cluster: Cluster) -> dict[str, str]:
    """Configurations of clients as the chart's Job makes them, for the super user."""
    files, layout = SecureFiles.of(cluster.layout), cluster.layout
    at = Addresses(layout.bootstrap, layout.grpc_client_bootstrap)
    password = files.password(ADMIN).read_text().strip()
    return client_files(at, ADMIN, password, files.ca.read_text())


@pytest.mark.feature("KU21", "SE30")
def test_the_program_of_helm_test_passes_with_the_environment_of_its_pod(cluster: Cluster) -> None:
    layout, files = cluster.layout, SecureFiles.of(cluster.layout)
    pod = named(rendered(DEFAULT), "Pod", "demo-test-produce-and-consume")
    (container,) = pod["spec"]["containers"]
    environment = {it["name"]: it["value"] for it in container["env"]}
    places = {
        "TIDEMARK_BOOTSTRAP": layout.bootstrap,
        "GRPC_CLIENT_BOOTSTRAP": layout.grpc_client_bootstrap,
        "TIDEMARK_REST": layout.rest_addresses.partition(",")[0],
        "TIDEMARK_SSL_CA_LOCATION": str(files.ca),
        "TIDEMARK_SASL_PASSWORD_FILE": str(files.password(ADMIN)),
    }
    assert places.keys() <= environment.keys()
    with sync.Admin(layout.bootstrap, **login(cluster)) as admin:
        admin.create_topics([NewTopic(environment["TOPIC"], 1, 1)])
    ran = subprocess.run(
        [sys.executable, "-P", "-c", environment["TRY_SERVICES"]],
        env={**os.environ, **environment, **places, "HOME": str(layout.directory)},
        cwd=layout.directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "transaction: works",
        "share group: works",
        "gRPC: works",
        "REST: works",
    ]


def login(cluster: Cluster) -> dict[str, Any]:
    """Settings of a client at Kafka's listener, of what Java clients read."""
    options = spark_options(cluster)
    security = kafka_security(options)
    assert security is not None
    names = ("security_protocol", "sasl_mechanism", "sasl_username", "sasl_password")
    return {name: getattr(security, name) for name in (*names, "ssl_ca_location")}


def spark_options(cluster: Cluster) -> dict[str, str]:
    """Options of the properties for Spark jobs, with the authority where this cluster has it."""
    text = files_of(cluster)["client.spark.properties"]
    ca = str(SecureFiles.of(cluster.layout).ca)
    return kafka_properties(text.replace(f"{MOUNTED_AT}/ca.crt", ca))


@pytest.mark.feature("SE27", "SE29", "SE30")
def test_the_configuration_for_spark_jobs_logs_in_at_the_listener_grpc(cluster: Cluster) -> None:
    layout = cluster.layout
    settings = client_security(spark_options(cluster))
    with sync.Admin(layout.bootstrap, **login(cluster)) as admin:
        admin.create_topics([NewTopic("over-grpc", 1, 1)])
    servers = layout.grpc_client_bootstrap
    with sync.Producer(servers, transport="grpc", **settings) as producer:
        producer.send("over-grpc", b"value", partition=0)
    with sync.Consumer(
        servers, transport="grpc", auto_offset_reset="earliest", group_id="readers", **settings
    ) as consumer:
        consumer.subscribe(["over-grpc"])
        found: list[bytes | None] = []
        while not found:
            found += [record.value for record in consumer.poll(1, timeout_ms=1_000)]
    assert found == [b"value"]
