"""Manifests of the chart: valid in every release of Kubernetes, restricted, consistent."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from helm.chart import (
    CHART,
    EXAMPLES,
    NEWEST,
    OLDEST,
    RELEASES,
    ROOT,
    VALUES,
    Manifest,
    containers,
    named,
    pods,
    problems,
    refused,
    rendered,
    rendered_text,
    run_helm,
)

CUSTOM = frozenset({"Certificate", "PodMonitor", "PrometheusRule", "ServiceMonitor"})
"""Kinds of cert-manager and of the Prometheus operator, of which Kubernetes has no schema."""
GOLDEN = Path(__file__).parent / "golden"
DEFAULT = Path(__file__).parent / "values/default.yaml"
SERVICES = ("-broker", "-controller", "-coordinator")
"""Ends of the names of the sets of services."""
each_values = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


def test_lint_finds_nothing() -> None:
    ran = run_helm("lint", "--strict", str(CHART))
    assert ran.returncode == 0, ran.stdout


@each_values
def test_every_release_of_kubernetes_knows_every_field(values: Path) -> None:
    old, new = rendered(values, OLDEST), rendered(values, "1.27")
    for release in RELEASES:
        manifests = old if release in ("1.25", "1.26") else new
        known = [manifest for manifest in manifests if manifest["kind"] not in CUSTOM]
        found = [problem for manifest in known for problem in problems(manifest, release)]
        assert found == [], f"Kubernetes {release}"


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    (manifest,) = (it for it in rendered(DEFAULT) if it["metadata"]["name"] == "demo-rest")
    wrong = {**manifest, "spec": {**manifest["spec"], "port": []}}
    assert [problem.partition(":")[0] for problem in problems(wrong, NEWEST)] == [
        "Service demo-rest, $.spec"
    ]


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "one-node",
        "racks",
        "external-tls",
        "insecure",
        "given-secrets",
        "cert-manager",
        "provisioning",
    ],
)
def test_manifests_are_as_they_were(name: str) -> None:
    """REWRITE=1 accepts a change; look at the difference before it is committed."""
    text = rendered_text(Path(__file__).parent / f"values/{name}.yaml")
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("REWRITE"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.feature("KU18")
def test_a_change_of_any_file_restarts_the_pods_that_have_it(tmp_path: Path) -> None:
    before = checksums(CHART)
    changed = shutil.copytree(CHART, tmp_path / "chart")
    files = changed / "templates/_files.tpl"
    files.write_text(files.read_text().replace("set -eu\n", "set -eux\n"))
    after = checksums(changed)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] == after[name]} == set()


def checksums(chart: Path) -> dict[str, str]:
    """Checksum of its files in the pods of each StatefulSet."""
    manifests = yaml.safe_load_all(run_helm("template", "demo", str(chart)).stdout)
    return {
        it["metadata"]["name"]: it["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for it in manifests
        if it is not None and it["kind"] == "StatefulSet"
    }


@pytest.mark.feature("KU16")
@each_values
def test_every_pod_is_restricted(values: Path) -> None:
    """Pod Security Standards, level restricted; host ports are what the level baseline adds."""
    for name, pod in pods(rendered(values)):
        of_pod = pod["spec"]["securityContext"]
        assert of_pod["runAsNonRoot"] is True, name
        assert of_pod["runAsUser"] > 0, name
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys(), name
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            ports = [port for port in container.get("ports", ()) if "hostPort" in port]
            assert not ports or values.stem == "host-port", name


@each_values
def test_only_allowed_kinds_of_volumes_are_mounted_and_each_exists(values: Path) -> None:
    allowed = {"configMap", "emptyDir", "secret", "projected"}
    for manifest in rendered(values):
        claims = {
            it["metadata"]["name"]
            for it in manifest.get("spec", {}).get("volumeClaimTemplates", ())
        }
        for name, pod in pods([manifest]):
            volumes = pod["spec"].get("volumes", [])
            assert {kind for it in volumes for kind in it} <= {"name", *allowed}, name
            there = {it["name"] for it in volumes} | claims
            mounted = {it["name"] for one in containers(pod) for it in one.get("volumeMounts", ())}
            assert mounted <= there, name


@pytest.mark.feature("KU17")
@each_values
def test_no_pod_has_a_token_but_the_roll_and_those_that_are_switched_on(values: Path) -> None:
    manifests = rendered(values)
    tokens = {name for name, pod in pods(manifests) if "serviceAccountToken" in str(pod)}
    jobs = {it["metadata"]["name"] for it in manifests if it["kind"] in ("Job", "CronJob")}
    rolled = {name for name in jobs if "roll" in name}
    assert len(rolled) == (values.stem != "no-roll")
    makers = {"secrets", "renewal"}
    without = {
        "insecure": makers,
        "one-node-private-network": makers,
        "given-secrets": {"renewal"},
    }
    found = {name.removesuffix("-1").rpartition("-")[2] for name in jobs - rolled}
    more = {"provisioning"} if values.stem == "provisioning" else set()
    assert found == makers - without.get(values.stem, set()) | more | {"scale"}
    chosen = yaml.safe_load(values.read_text()) or {}
    switched_on = {"rackAwareness": "demo-broker", "replaceLostNodes": "demo-controller"}
    wanted = {pod for key, pod in switched_on.items() if chosen.get(key, {}).get("enabled")}
    assert tokens == jobs | wanted
    assert all(pod["spec"]["automountServiceAccountToken"] is False for _, pod in pods(manifests))


@pytest.mark.feature("KU17")
@each_values
def test_each_set_of_a_service_names_an_account_that_is_there(values: Path) -> None:
    """Kubernetes keeps the name of an account that was removed if the field is only left out."""
    manifests = rendered(values)
    there = {it["metadata"]["name"] for it in manifests if it["kind"] == "ServiceAccount"}
    for found in manifests:
        if found["kind"] == "StatefulSet" and "zookeeper" not in found["metadata"]["name"]:
            name = found["spec"]["template"]["spec"]["serviceAccountName"]
            assert name in {"default", *there}


@pytest.mark.feature("KU10")
def test_racks_need_no_more_than_to_get_nodes() -> None:
    manifests = rendered(DEFAULT.with_name("racks.yaml"))
    role = named(manifests, "ClusterRole", "log-demo-broker-zones")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    kinds = {manifest["kind"] for manifest in rendered(DEFAULT)}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}


@pytest.mark.feature("KU15", "KU17")
def test_the_roll_may_evict_pods_and_not_delete_them() -> None:
    rules = named(rendered(DEFAULT), "Role", "demo-roll")["rules"]
    found = {(it["resources"][0], verb) for it in rules for verb in it["verbs"]}
    assert found == {("pods", "list"), ("statefulsets", "list"), ("pods/eviction", "create")}
    without = rendered(DEFAULT.with_name("no-roll.yaml"))
    assert not [it for it in without if it["metadata"]["name"].startswith("demo-roll")]


@pytest.mark.feature("KU17", "KU24")
def test_brokers_are_counted_before_an_upgrade_and_a_rollback_and_after_certificates() -> None:
    manifests = rendered(DEFAULT.with_name("many.yaml"))
    hooks = {it["kind"]: it for it in manifests if it["metadata"]["name"] == "demo-can-scale"}
    assert hooks.keys() == {"ServiceAccount", "Role", "RoleBinding", "Job"}
    weight = hook_of(named(manifests, "Job", "demo-secrets"), "hook-weight")
    for found in hooks.values():
        assert hook_of(found, "hook") == "pre-upgrade,pre-rollback"
        assert int(hook_of(found, "hook-weight")) > int(weight)
    assert hooks["Role"]["rules"] == [
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["list"]}
    ]
    (container,) = hooks["Job"]["spec"]["template"]["spec"]["containers"]
    brokers = named(manifests, "StatefulSet", "demo-broker")["spec"]["replicas"]
    assert container["command"][-4:-2] == ["--brokers", str(brokers)]


def hook_of(manifest: Manifest, key: str) -> str:
    """An annotation by which helm runs a manifest as a hook."""
    value: str = manifest["metadata"]["annotations"][f"helm.sh/{key}"]
    return value


@pytest.mark.feature("SE29")
def test_certificates_are_made_before_anything_else_and_by_no_release_of_helms() -> None:
    """A hook: what it makes is neither removed with the release nor made again by an upgrade."""
    manifests = rendered(DEFAULT)
    hooks = {
        it["kind"]: it["metadata"]["annotations"]["helm.sh/hook"]
        for it in manifests
        if it["metadata"]["name"] == "demo-secrets"
    }
    kinds = ("ServiceAccount", "Role", "RoleBinding", "Job")
    assert hooks == dict.fromkeys(kinds, "pre-install,pre-upgrade")
    assert rendered_text(DEFAULT) == rendered_text.__wrapped__(DEFAULT)


@pytest.mark.feature("SE29")
def test_cert_manager_writes_the_secrets_that_pods_mount() -> None:
    manifests = rendered(DEFAULT.with_name("cert-manager.yaml"))
    written = {
        it["spec"]["secretName"]: it["spec"] for it in manifests if it["kind"] == "Certificate"
    }
    mounted = {
        volume["secret"]["secretName"]
        for _, pod in pods(manifests)
        for volume in pod["spec"]["volumes"]
        if volume["name"] == "certificate"
    }
    assert mounted == set(written)
    for secret, spec in written.items():
        assert spec["commonName"] == secret.removesuffix("-tls")
        assert spec["privateKey"]["encoding"] == "PKCS8"
        assert {"server auth", "client auth"} <= set(spec["usages"])
        assert spec["issuerRef"] == {
            "name": "in-house",
            "kind": "ClusterIssuer",
            "group": "cert-manager.io",
        }
    broker = written["demo-broker-tls"]
    assert {"192.0.2.1", "2001:db8::1", "127.0.0.1"} == set(broker["ipAddresses"])
    assert {"log.example.com", "*.demo-broker.log.svc.cluster.local"} <= set(broker["dnsNames"])


@pytest.mark.feature("SE29")
def test_with_cert_manager_configurations_of_clients_wait_for_its_authority() -> None:
    manifests = rendered(DEFAULT.with_name("cert-manager.yaml"))
    for name, waits in (("demo-secrets", False), ("demo-renewal-1", True)):
        job = named(manifests, "Job", name)
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        assert "--authority=demo-operator-tls" in command
        assert [word for word in command if word.startswith("--certificate")] == []
        assert any(word.startswith("--wait=") for word in command) == waits
        assert ("annotations" in job["metadata"]) == (not waits), "the one before is a hook"


@pytest.mark.feature("KU01")
@each_values
def test_each_set_starts_in_parallel_behind_a_headless_service_of_its_own(values: Path) -> None:
    manifests = rendered(values)
    sets = [it for it in manifests if it["kind"] == "StatefulSet"]
    assert len(sets) == (4 if values.stem == "external-zookeeper" else 5)
    for found in sets:
        assert found["spec"]["podManagementPolicy"] == "Parallel"
        service = named(manifests, "Service", found["spec"]["serviceName"])["spec"]
        assert service["clusterIP"] == "None"
        assert service["publishNotReadyAddresses"] is True
        assert service["selector"] == found["spec"]["selector"]["matchLabels"]


@each_values
def test_services_and_policies_name_ports_that_their_pods_have(values: Path) -> None:
    manifests = rendered(values)
    for manifest in manifests:
        if manifest["kind"] == "Service":
            wanted = {port["targetPort"] for port in manifest["spec"]["ports"]}
            selector = manifest["spec"]["selector"]
        elif manifest["kind"] == "NetworkPolicy":
            wanted = {
                port["port"] for rule in manifest["spec"]["ingress"] for port in rule["ports"]
            }
            selector = manifest["spec"]["podSelector"]["matchLabels"]
        else:
            continue
        assert wanted <= ports_behind(manifests, selector), manifest["metadata"]["name"]


def ports_behind(manifests: list[Manifest], selector: dict[str, str]) -> set[str]:
    """Names of the ports of the pods that a selector finds, whatever their ordinal."""
    labels = {k: v for k, v in selector.items() if k != "statefulset.kubernetes.io/pod-name"}
    return {
        port["name"]
        for _, pod in pods(manifests)
        if labels.items() <= pod["metadata"]["labels"].items()
        for container in containers(pod)
        for port in container.get("ports", ())
    }


@pytest.mark.feature("KU17", "SE30")
@each_values
def test_ports_of_processes_admit_pods_of_the_release_alone(values: Path) -> None:
    manifests = rendered(values)
    policies = [it for it in manifests if it["kind"] == "NetworkPolicy"]
    assert bool(policies) == (values.stem != "no-network-policies")
    for policy in policies:
        for rule in policy["spec"]["ingress"]:
            named_ports = {port["port"] for port in rule["ports"]}
            if named_ports & {"grpc", "internal", "peer", "election"}:
                labels = [it["podSelector"]["matchLabels"] for it in rule["from"]]
                instances = {it["app.kubernetes.io/instance"] for it in labels}
                assert instances == {"demo"}, policy["metadata"]["name"]
    admitted = {
        port["port"]
        for policy in policies
        if policy["metadata"]["name"].endswith("-broker")
        for port in policy["spec"]["ingress"][0]["ports"]
    }
    assert admitted <= {"client", "grpc-client", "ops"}
    assert ("grpc-client" in admitted) == bool(policies and values.stem != "no-grpc")


@pytest.mark.feature("KU19")
def test_a_monitor_selects_a_port_of_every_service() -> None:
    manifests = rendered(DEFAULT.with_name("monitored.yaml"))
    (found,) = (it for it in manifests if it["kind"] == "PodMonitor")
    (endpoint,), selector = found["spec"]["podMetricsEndpoints"], found["spec"]["selector"]
    (rule,) = selector["matchExpressions"]
    for component in rule["values"]:
        labels = {**selector["matchLabels"], rule["key"]: component}
        assert endpoint["port"] in ports_behind(manifests, labels), component
    assert found["metadata"]["labels"]["prometheus"] == "main"
    assert not {it["kind"] for it in rendered(DEFAULT)} & CUSTOM


@pytest.mark.feature("KU19")
def test_a_service_monitor_selects_a_port_of_every_service_and_names_its_job() -> None:
    manifests = rendered(DEFAULT.with_name("service-monitor.yaml"))
    (found,) = (it["spec"] for it in manifests if it["kind"] == "ServiceMonitor")
    (rule,), labels = found["selector"]["matchExpressions"], found["selector"]["matchLabels"]
    chosen = [
        it
        for it in manifests
        if it["kind"] == "Service"
        and labels.items() <= it["metadata"]["labels"].items()
        and rule["key"] in it["metadata"]["labels"]
    ]
    assert sorted(it["metadata"]["labels"][found["jobLabel"]] for it in chosen) == [
        "tidemark-broker",
        "tidemark-controller",
        "tidemark-share-coordinator",
        "tidemark-txn-coordinator",
    ]
    for service in chosen:
        assert "ops" in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.feature("KU19")
def test_alerts_and_dashboards_are_those_of_the_repository() -> None:
    manifests = rendered(DEFAULT.with_name("service-monitor.yaml"))
    (rules,) = (it["spec"] for it in manifests if it["kind"] == "PrometheusRule")
    assert rules == yaml.safe_load((ROOT / "monitoring/alerts.yaml").read_text())
    shown = {
        name: json.loads(text)
        for it in manifests
        if it["kind"] == "ConfigMap" and "grafana_dashboard" in it["metadata"]["labels"]
        for name, text in it["data"].items()
    }
    there = (ROOT / "monitoring/dashboards").glob("*.json")
    assert shown == {path.name: json.loads(path.read_text()) for path in there}


@pytest.mark.feature("KU19")
def test_a_package_of_the_chart_has_alerts_and_dashboards(tmp_path: Path) -> None:
    ran = run_helm("package", str(CHART), "--destination", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        files = {it.name: it.size for it in archive.getmembers()}
    assert files["tidemark/files/alerts.yaml"] == (ROOT / "monitoring/alerts.yaml").stat().st_size
    assert "tidemark/files/dashboards/broker.json" in files


@pytest.mark.feature("KU07")
@pytest.mark.parametrize("release", RELEASES)
def test_the_class_and_the_volume_of_the_examples_are_valid(release: str) -> None:
    for path in (EXAMPLES / "local-volumes").glob("*.yaml"):
        assert problems(yaml.safe_load(path.read_text()), release) == ()


@pytest.mark.feature("KU02")
def test_an_eviction_takes_one_pod_at_a_time() -> None:
    found = [it["spec"] for it in rendered(DEFAULT) if it["kind"] == "PodDisruptionBudget"]
    assert [(it["maxUnavailable"], it["unhealthyPodEvictionPolicy"]) for it in found] == [
        (1, "IfHealthyBudget")
    ] * 5


@pytest.mark.feature("KU03")
@pytest.mark.parametrize(("name", "rule"), [("default", "required"), ("one-node", "preferred")])
def test_pods_of_a_kind_are_spread_over_hosts_and_zones(name: str, rule: str) -> None:
    for _, pod in pods(rendered(DEFAULT.with_name(f"{name}.yaml"))):
        if "affinity" in pod["spec"]:
            anti = pod["spec"]["affinity"]["podAntiAffinity"]
            assert list(anti) == [f"{rule}DuringSchedulingIgnoredDuringExecution"]
            (spread,) = pod["spec"]["topologySpreadConstraints"]
            assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    broker = named(rendered(DEFAULT), "StatefulSet", "demo-broker")["spec"]["template"]["spec"]
    assert broker["terminationGracePeriodSeconds"] == 120


@pytest.mark.feature("KU12")
@each_values
def test_probes_ask_what_they_are_for(values: Path) -> None:
    for name, pod in pods(rendered(values)):
        if not name.endswith(SERVICES):
            continue
        probed = pod["spec"]["containers"][0]
        assert probed["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "ops"}
        assert probed["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "ops"}
        startup = probed["startupProbe"]
        assert startup["httpGet"] == {"path": "/startupz", "port": "ops"}
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 24 * 3_600


def test_claims_outlive_the_release_and_its_pods() -> None:
    for found in rendered(DEFAULT):
        if found["kind"] == "StatefulSet":
            policy = found["spec"]["persistentVolumeClaimRetentionPolicy"]
            assert policy == {"whenDeleted": "Retain", "whenScaled": "Retain"}
        assert found["kind"] not in ("PersistentVolume", "PersistentVolumeClaim", "StorageClass")


@pytest.mark.feature("KU06")
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("broker: {replica: 4}", "additional properties 'replica' not allowed"),
        ("brokers: {}", "additional properties 'brokers' not allowed"),
        ("broker: {replicas: 0}", "at '/broker/replicas': minimum"),
        ("broker: {replicas: '3'}", "at '/broker/replicas': got string, want integer"),
        ("broker: {replicas: 2}", "raise broker.replicas or lower replication.factor"),
        ("replication: {minInSyncReplicas: 3}", "lower replication.minInSyncReplicas to 2"),
        ("controller: {maxUnavailable: 3}", "maxUnavailable is 3, more than controller.replicas"),
        ("zookeeper: {replicas: 2}", "at '/zookeeper/replicas': value must be one of 1, 3, 5"),
        ("zookeeper: {external: nowhere}", "at '/zookeeper/external'"),
        ("broker: {storage: {size: much}}", "at '/broker/storage/size'"),
        ("broker: {config: {Log_Dirs: a}}", "invalid propertyName 'Log_Dirs'"),
        ("external: {type: Ingress}", "value must be one of 'none', 'NodePort'"),
        ("external: {type: Addresses, addresses: ['a:1']}", "for each of the 3 brokers"),
        ("external: {type: HostPort, port: 9092}", "at '/external/port'"),
        ("external: {tlsSecretName: a}", "external.type is none"),
        ("broker: {replicasMayShareHost: true}", "set antiAffinity to soft"),
        ("networkPolicy: {allowedNamespaces: [A B]}", "at '/networkPolicy/allowedNamespaces/0'"),
        (
            "metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}",
            "scraped twice; disable one",
        ),
        ("tls: {enabled: false}", "auth.enabled needs tls.enabled"),
        ("tls: {existingSecret: a}", "tls.existingSecret needs tls.principal"),
        ("tls: {issuerRef: {name: a}, existingSecret: b}", "are both set"),
        (
            "{tls: {enabled: false, issuerRef: {name: a}}, auth: {enabled: false}}",
            "needs tls.enabled",
        ),
        ("tls: {issuerRef: {name: A B}}", "at '/tls/issuerRef/name'"),
        ("tls: {issuerRef: {nam: a}}", "additional properties 'nam' not allowed"),
        ("tls: {existingSecret: A B}", "at '/tls/existingSecret'"),
        ("tls: {renewal: weekly}", "at '/tls/renewal'"),
        ("auth: {superUser: 'a:b'}", "at '/auth/superUser'"),
        ("auth: {mechanisms: [PLAIN]}", "at '/auth/mechanisms'"),
        ("image: {digest: latest}", "at '/image/digest'"),
        ("provisioning: {topics: [{name: a}]}", "set it to true"),
        (
            "provisioning: {enabled: true, topics: [{name: a/b}]}",
            "at '/provisioning/topics/0/name'",
        ),
        (
            "provisioning: {enabled: true, topics: [{name: a, replicationFactor: 4}]}",
            "a wants 4 replicas, but there are 3 brokers",
        ),
        (
            "{auth: {enabled: false}, provisioning: {enabled: true, users: [{name: a}]}}",
            "provisioning.acls need auth.enabled",
        ),
        ("provisioning: {enabled: true, users: [{name: a_b}]}", "give existingSecret"),
        ("provisioning: {enabled: true, users: [{name: admin}]}", "admin is the super user"),
        (
            "provisioning: {enabled: true, acls: [{topic: a, operations: [read]}]}",
            "missing property 'principal'",
        ),
        (
            "provisioning: {users: [{name: a, acls: [{topic: a, operations: [go]}]}]}",
            "at '/provisioning/users/0/acls/0",
        ),
    ],
)
def test_values_that_cannot_work_are_refused(tmp_path: Path, values: str, reason: str) -> None:
    assert reason in refused(tmp_path, values)
