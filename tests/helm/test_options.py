"""The chart's options are those of the services: what a pod would start with is read by theirs."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import write_chart_readme
from broker.config import BrokerConfig
from controller.config import ControllerConfig
from helm.chart import CHART, VALUES, Manifest, containers, named, pods, rendered, rendered_text
from share_coordinator.config import ShareCoordinatorConfig
from tidemark.runtime.service_config import ServiceConfig, load
from txn_coordinator.config import TxnCoordinatorConfig

CLASSES: dict[str, type[ServiceConfig]] = {
    "broker": BrokerConfig,
    "controller": ControllerConfig,
    "txn-coordinator": TxnCoordinatorConfig,
    "share-coordinator": ShareCoordinatorConfig,
}
VALUES_FOLDER = Path(__file__).parent / "values"
SUPERVISED = ["-P", "-m", "tidemark.runtime.supervisor"]
"""Arguments of Python before the module of a service and its arguments."""
PASSWORD_FILE = "/etc/tidemark-super-user/password"
NAMED_PASSWORDS = ("--given-password=own-password", "--passwords=/etc/tidemark-users")
PRINTER = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n'


class Pod(NamedTuple):
    """Start of a pod, with the node that it is on."""

    name: str
    number: int
    host_ip: str = "192.0.2.7"
    node: str = "node-7"


def started(manifests: list[Manifest], component: str, folder: Path, pod: Pod) -> ServiceConfig:
    """Run the start script with a program that prints its arguments, and load what it prints."""
    (found,) = (
        it["data"]
        for it in manifests
        if it["kind"] == "ConfigMap" and f"{component}.yaml" in it["data"]
    )
    config = folder / f"{component}.yaml"
    config.write_text(found[f"{component}.yaml"])
    program = folder / "python3"
    program.write_text(PRINTER)
    program.chmod(0o755)
    (folder / "rack").write_text("zone-1")
    (folder / "password").write_text("of-the-super-user")
    script = found["start.sh"].replace("/run/tidemark", str(folder))
    script = script.replace(PASSWORD_FILE, str(folder / "password")).replace(
        "/tmp/users", f"{folder}/users"
    )
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "POD_NAME": f"{pod.name}-{pod.number}",
        "NODE_NAME": pod.node,
        "HOST_IP": pod.host_ip,
    }
    printed = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout
    argv = printed.replace(f"/etc/tidemark/{component}.yaml", str(config)).split("\n")[:-1]
    assert argv[: len(SUPERVISED) + 1] == [*SUPERVISED, component.replace("-", "_")]
    return load(CLASSES[component], argv[len(SUPERVISED) + 1 :], "TIDEMARK_X_", environ={})


def broker(values: str, folder: Path, number: int = 0) -> BrokerConfig:
    manifests = rendered(VALUES_FOLDER / f"{values}.yaml")
    config = started(manifests, "broker", folder, Pod("demo-broker", number))
    assert isinstance(config, BrokerConfig)
    return config


def controller(values: str, folder: Path) -> ControllerConfig:
    manifests = rendered(VALUES_FOLDER / f"{values}.yaml")
    config = started(manifests, "controller", folder, Pod("demo-controller", 0))
    assert isinstance(config, ControllerConfig)
    return config


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
@pytest.mark.parametrize("component", CLASSES)
def test_every_service_takes_its_options(values: Path, component: str, tmp_path: Path) -> None:
    config = started(rendered(values), component, tmp_path, Pod(f"demo-{component}", 0))
    assert config.log_format == "json"
    assert config.ops_listen == "0.0.0.0:9392"


@pytest.mark.feature("KU04")
def test_without_values_there_are_three_brokers_and_two_of_three_replicas_in_sync(
    tmp_path: Path,
) -> None:
    manifests = rendered(VALUES_FOLDER / "default.yaml")
    config = broker("default", tmp_path, 2)
    assert named(manifests, "StatefulSet", "demo-broker")["spec"]["replicas"] == 3
    assert config.broker_id == 2
    assert config.default_replication_factor == 3
    assert config.topic_defaults()["min.insync.replicas"] == "2"
    assert config.transaction_state_log_min_isr == 2
    assert config.node == "node-7"


def test_options_reach_the_broker_as_they_are_written(tmp_path: Path) -> None:
    config = broker("options", tmp_path)
    assert config.topic_defaults() == {
        "min.insync.replicas": "2",
        "retention.ms": "86400000",
        "flush": "group",
    }
    assert (config.num_partitions, config.auto_create_topics_enable) == (12, False)
    assert config.lease_ms == 5_000


def test_a_pod_is_given_as_long_as_its_service_may_drain(tmp_path: Path) -> None:
    config = broker("rolling", tmp_path)
    (files,) = (
        it["data"]
        for it in rendered(VALUES_FOLDER / "rolling.yaml")
        if it["kind"] == "ConfigMap" and "stop.sh" in it["data"]
    )
    held_s = int(files["stop.sh"].split()[-2])
    assert (held_s, config.shutdown_deadline_ms) == (67, 223_000)
    assert held_s * 1_000 + config.shutdown_deadline_ms <= 290_000
    assert config.controlled_shutdown_deadline_ms <= 0.4 * config.shutdown_deadline_ms


@pytest.mark.feature("KU09")
@pytest.mark.parametrize(
    ("values", "address"),
    [
        ("node-port", "192.0.2.7:30502"),
        ("host-port", "192.0.2.7:9094"),
        ("load-balancer", "b2.example.com:9095"),
        ("given-addresses", "192.0.2.3:9094"),
    ],
)
def test_each_broker_advertises_where_clients_outside_reach_it(
    values: str, address: str, tmp_path: Path
) -> None:
    points = {point.listener: point for point in broker(values, tmp_path, 2).endpoints()}
    inside = "demo-broker-2.demo-broker.log.svc.cluster.local"
    assert f"{points['EXTERNAL'].host}:{points['EXTERNAL'].port}" == address
    assert (points["CLIENT"].host, points["CLIENT"].port) == (inside, 9092)
    assert (points["INTERNAL"].host, points["INTERNAL"].port) == (inside, 9192)


@pytest.mark.feature("KU05", "SE29")
@pytest.mark.parametrize(
    ("values", "client", "internal"),
    [
        ("node-port", "SASL_SSL", "SSL"),
        ("no-logins", "SSL", "SSL"),
        ("insecure", "PLAINTEXT", "PLAINTEXT"),
    ],
)
def test_listeners_have_tls_and_logins_unless_they_are_switched_off(
    values: str, client: str, internal: str, tmp_path: Path
) -> None:
    config = broker(values, tmp_path)
    spoken = {it.name: it.security_protocol for it in config.parsed_listeners()}
    assert spoken.pop("INTERNAL") == internal
    assert set(spoken.values()) == {client}
    assert bool(config.process_principals) == bool(config.grpc_ssl_client_auth == "required")
    assert config.zookeeper_set_acl == (values != "insecure")


@pytest.mark.feature("SE29", "SE30")
@pytest.mark.parametrize(
    ("values", "mechanisms"), [("default", ("PLAIN",)), ("no-logins", ()), ("insecure", ())]
)
def test_clients_over_grpc_have_a_listener_with_the_logins_of_the_others(
    values: str, mechanisms: tuple[str, ...], tmp_path: Path
) -> None:
    config = broker(values, tmp_path, 1)
    listener = config.grpc_listener()
    assert listener is not None
    if mechanisms:
        assert config.mechanisms_of(listener) == mechanisms
    assert listener.speaks_sasl == bool(mechanisms)
    points = {point.listener: point for point in config.endpoints()}
    host = "demo-broker-1.demo-broker.log.svc.cluster.local"
    assert (points["GRPC"].host, points["GRPC"].port) == (host, 9792)
    assert broker("no-grpc", tmp_path).grpc_listener() is None


@pytest.mark.feature("KU05", "SE29")
def test_without_values_acls_decide_and_only_the_super_user_may_do_everything(
    tmp_path: Path,
) -> None:
    config = broker("default", tmp_path)
    assert config.authorizer_class_name
    assert config.super_users == "User:admin"
    assert config.process_principals == {f"User:CN=demo-{component}" for component in CLASSES}


@pytest.mark.feature("KU21", "SE29")
def test_rest_wants_a_login_and_a_broker_may_only_look(tmp_path: Path) -> None:
    config = controller("default", tmp_path)
    assert config.rest_authentication_mechanisms == ("basic", "mtls")
    assert not config.rest_private_network
    assert set(config.roles.values()) == {"viewer"}
    assert {"User:CN=demo-broker", "User:CN=demo-operator"} <= set(config.roles)
    assert controller("insecure", tmp_path).rest_private_network


@pytest.mark.feature("KU06")
def test_given_secrets_are_mounted_and_their_principal_is_that_of_the_processes(
    tmp_path: Path,
) -> None:
    manifests = rendered(VALUES_FOLDER / "given-secrets.yaml")
    config = broker("given-secrets", tmp_path)
    assert config.process_principals == {"User:CN=tidemark,O=Acme"}
    assert config.super_users == "User:root;User:alice"
    for component in (*CLASSES, "zookeeper"):
        pod = named(manifests, "StatefulSet", f"demo-{component}")["spec"]["template"]["spec"]
        mounted = {it["secret"]["secretName"] for it in pod["volumes"] if "secret" in it}
        assert "own-certificate" in mounted
        assert ("own-password" in mounted) == (component == "controller")
    assert not [it for it in manifests if it["kind"] == "CronJob"]


def test_the_external_listener_has_a_certificate_of_its_own_with_a_secret(tmp_path: Path) -> None:
    config = broker("external-tls", tmp_path)
    spoken = {it.name: it.security_protocol for it in config.parsed_listeners()}
    assert spoken.pop("INTERNAL") == "SSL"
    assert spoken == dict.fromkeys(("CLIENT", "GRPC", "EXTERNAL"), "SASL_SSL")
    text = rendered_text(VALUES_FOLDER / "external-tls.yaml")
    key = "listener.name.external.ssl.certificate.location: "
    assert f"{key}/etc/tidemark-tls/tls.crt" in text


@pytest.mark.feature("SE29")
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_a_certificate_has_every_name_by_which_its_processes_are_reached(
    values: Path, tmp_path: Path
) -> None:
    manifests = rendered(values)
    hosts = dict(it.split("=")[1:] for it in made_certificates(manifests))
    hosts |= {
        it["metadata"]["name"].removeprefix("demo-"): ",".join(it["spec"].get("dnsNames", ()))
        for it in manifests
        if it["kind"] == "Certificate"
    }
    for component in CLASSES if hosts else ():
        config = started(manifests, component, tmp_path, Pod(f"demo-{component}", 1))
        host = config.grpc_advertised.rpartition(":")[0]  # type: ignore[attr-defined]
        assert f"*.{host.partition('.')[2]}" in hosts[component].split(",")
    if values.stem == "node-names":
        assert {"192.0.2.1", "log.example.com"} <= set(hosts["broker"].split(","))
    if values.stem == "load-balancer":
        assert "b2.example.com" in hosts["broker"].split(",")


def made_certificates(manifests: list[Manifest]) -> list[str]:
    """Arguments of the Job that makes Secrets, about certificates."""
    return [
        word
        for name, pod in pods(manifests)
        if name == "demo-secrets"
        for word in pod["spec"]["containers"][0]["command"]
        if word.startswith("--certificate=")
    ]


def test_a_broker_has_a_directory_on_each_disk_and_the_rack_of_its_node(tmp_path: Path) -> None:
    disks = [f"/data/disk{number}/log" for number in range(3)]
    assert broker("local-disks", tmp_path).log_dirs == tuple(disks)
    assert broker("racks", tmp_path).rack == "zone-1"
    assert broker("default", tmp_path).rack == ""


def test_brokers_of_one_host_count_as_many_only_on_request(tmp_path: Path) -> None:
    assert broker("one-node-three-brokers", tmp_path).node == "demo-broker-0"
    assert broker("one-node", tmp_path).node == "node-7"


@pytest.mark.feature("KU29")
def test_a_controller_replaces_nothing_unless_it_is_switched_on(tmp_path: Path) -> None:
    for values, release, wait_ms in (("default", "", 600_000), ("lost-nodes", "demo", 120_000)):
        manifests = rendered(VALUES_FOLDER / f"{values}.yaml")
        config = started(manifests, "controller", tmp_path, Pod("demo-controller", 0))
        assert isinstance(config, ControllerConfig)
        assert (config.kubernetes_release, config.kubernetes_node_lost_ms) == (release, wait_ms)


@pytest.mark.feature("KU17")
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_no_secret_is_in_a_config_map_or_an_argument(values: Path) -> None:
    """Where a password is named, it is the path of its file, or the name of a Secret."""
    for manifest in rendered(values):
        if manifest["kind"] == "ConfigMap":
            text = str(manifest["data"]).lower().replace(PASSWORD_FILE, "")
            assert "password" not in text
            assert "private key" not in text
        assert manifest["kind"] != "Secret"
    for _, pod in pods(rendered(values)):
        for container in containers(pod):
            settings = {it["name"]: it.get("value", "") for it in container.get("env", ())}
            assert not [name for name in settings if name.endswith("PASSWORD")]
            settings.pop("TRY_SERVICES", None)  # a program, which reads the file
            text = str([container.get("command"), list(settings.values())]).lower()
            for known in (PASSWORD_FILE, *NAMED_PASSWORDS):
                text = text.replace(known, "")
            assert "password" not in text


@pytest.mark.feature("KU23")
def test_the_readme_lists_the_values_as_they_are() -> None:
    assert write_chart_readme.readme() == (CHART / "README.md").read_text(), "run make reference"
