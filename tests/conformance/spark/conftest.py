"""A local Spark session that has Spark's own Kafka connector, and three brokers."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.spark.connector_jars import ConnectorMissingError, resolve
from e2e.clusters import Cluster
from e2e.transactional_clients import transactional_cluster
from pyspark.sql import SparkSession
from spark.conftest import SPARK_CONF, end_jvm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves sockets to the garbage collector, and pyspark its own old ways."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for kind in ("ResourceWarning", "DeprecationWarning", "FutureWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(scope="session")
def connector_jars() -> str:
    try:
        return resolve().spark_jars
    except ConnectorMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(connector_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("SPARK_HOME", raising=False)
        builder = SparkSession.builder.master("local[2]").appName("kafka-connector")
        for name, value in SPARK_CONF.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.local.dir", os.fspath(directory / "local"))
        session = builder.config("spark.jars", connector_jars).getOrCreate()
        try:
            yield session
        finally:
            end_jvm(session)


@pytest.fixture(scope="session")
def cluster(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Started only once there is something to run; every test leaves it whole."""
    quick = {"zookeeper.session.timeout.ms": 4_000, "replica.lag.time.max.ms": 4_000}
    directory = tmp_path_factory.mktemp("cluster")
    with transactional_cluster(directory, overrides={"broker": quick}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"spark-{uuid.uuid4().hex[:8]}"
