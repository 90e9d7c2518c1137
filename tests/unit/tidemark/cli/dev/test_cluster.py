"""What an embedded cluster tells its processes."""

import json
import sys
from pathlib import Path

import pytest
from broker.config import BrokerConfig
from controller.config import ControllerConfig
from share_coordinator.config import ShareCoordinatorConfig
from tidemark.cli.dev.cluster import Config, DevCluster
from tidemark.cli.dev.layout import SHARE_COORDINATOR, TXN_COORDINATOR, Layout, Shape
from tidemark.runtime.cluster_config import ClusterConfig
from tidemark.runtime.service_config import ServiceConfig, load
from txn_coordinator.config import TxnCoordinatorConfig

CLASSES: dict[str, type[ServiceConfig]] = {
    "broker": BrokerConfig,
    "controller": ControllerConfig,
    TXN_COORDINATOR: TxnCoordinatorConfig,
    SHARE_COORDINATOR: ShareCoordinatorConfig,
}


def command(directory: Path, name: str, **overrides: Config) -> list[str]:
    layout = Layout(directory, Shape(txn_coordinators=2, share_coordinators=2))
    layout.run_directory.mkdir()
    return DevCluster(layout, overrides=overrides)._argv(layout.member(name))


@pytest.mark.parametrize("kind", CLASSES)
def test_every_service_accepts_its_configuration(kind: str, tmp_path: Path) -> None:
    argv = command(tmp_path, f"{kind}-2")
    assert argv[:4] == [sys.executable, "-P", "-m", kind.replace("-", "_")]
    config = load(CLASSES[kind], argv[4:], "TIDEMARK_TEST_")
    assert config.zookeeper_connect == "127.0.0.1:2181/tidemark"


def test_a_coordinator_has_ports_of_its_own_and_no_directory(tmp_path: Path) -> None:
    argv = command(tmp_path, "txn-coordinator-2", **{TXN_COORDINATOR: {"log.level": "DEBUG"}})
    assert json.loads(Path(argv[-1]).read_text()) == {
        "coordinator.id": 2,
        "zookeeper.connect": "127.0.0.1:2181/tidemark",
        "grpc.listen": "127.0.0.1:19191",
        "ops.listen": "127.0.0.1:9493",
        "log.level": "DEBUG",
    }
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 2), (5, 3, 2)])
def test_internal_topics_have_the_replicas_that_the_cluster_can_have(
    brokers: int, replicas: int, in_sync: int, tmp_path: Path
) -> None:
    cluster = DevCluster(Layout(tmp_path, Shape(brokers=brokers)))
    config = cluster._config(cluster.layout.member("broker-1"))
    assert config["offsets.topic.replication.factor"] == replicas
    assert config["transaction.state.log.replication.factor"] == replicas
    assert config["transaction.state.log.min.isr"] == in_sync
    assert config["share.coordinator.state.topic.replication.factor"] == replicas
    assert config["share.coordinator.state.topic.min.isr"] == in_sync
    controller = cluster._config(cluster.layout.member("controller-1"))
    assert controller["default.replication.factor"] == replicas


@pytest.mark.feature("SE25")
@pytest.mark.parametrize("kind", CLASSES)
def test_every_service_accepts_its_configuration_of_a_secure_cluster(
    kind: str, tmp_path: Path
) -> None:
    shape = Shape(txn_coordinators=1, share_coordinators=1, is_secure=True)
    cluster = DevCluster(Layout(tmp_path, shape))
    cluster.layout.run_directory.mkdir()
    argv = cluster._argv(cluster.layout.member(f"{kind}-1"))
    config = load(CLASSES[kind], argv[4:], "TIDEMARK_TEST_")
    assert isinstance(config, ClusterConfig)
    assert config.process_principals == {"User:process"}
    assert config.zookeeper_access().has_tls
    if isinstance(config, BrokerConfig):
        assert config.authorizer_class_name
        protocols = {one.name: one.security_protocol for one in config.parsed_listeners()}
        assert protocols == {
            "CLIENT": "SASL_SSL",
            "MUTUAL": "SSL",
            "INTERNAL": "SSL",
            "GRPC": "SASL_SSL",
        }
