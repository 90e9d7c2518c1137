"""Everything that a cluster shows, by its place: where a secret must not be."""

import json
import os
import subprocess
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource
from e2e.clusters import Cluster
from e2e.command_line import COMMAND
from kazoo.client import KazooClient
from tidemark.cli.dev.layout import HOST
from waiting import PATIENCE_S

OPS_PAGES = ("/metrics", "/loglevel", "/stacks", "/livez", "/configs")
REST_PAGES = ("users", "acls", "quotas", "brokers", "brokers/1/configs", "broker-configs", "events")


def shown(cluster: Cluster, directory: Path) -> Iterator[tuple[str, str]]:
    """Pairs of a place and what it shows. The environment of processes is exempt: only their owner
    can read it.
    """
    services = [name for name in cluster.running() if name != "zookeeper"]
    for name in services:
        yield f"log of {name}", cluster.log(name)
        arguments = Path(f"/proc/{cluster.pid(name)}/cmdline").read_bytes()
        yield f"arguments of {name}", arguments.decode(errors="replace")
        ports = cluster.layout.member(name).ports
        port = ports.get("ops") or ports["rest"]
        for page in OPS_PAGES:
            yield f"{page} of {name}", _page(f"http://{HOST}:{port}{page}")
    rest = cluster.layout.member("controller-1").ports["rest"]
    base = f"http://{HOST}:{rest}/v3/clusters"
    (only,) = json.loads(_page(base))["data"]
    for page in REST_PAGES:
        yield f"REST {page}", _page(f"{base}/{only['cluster_id']}/{page}")
    yield from _znodes(cluster)
    yield from _configs(cluster)
    yield from _bundle(cluster, directory / "bundle.zip")


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read(), "utf-8", "replace")
    except urllib.error.HTTPError as refused:
        return str(refused.read(), "utf-8", "replace")


def _znodes(cluster: Cluster) -> Iterator[tuple[str, str]]:
    client = KazooClient(cluster.layout.zookeeper_connect)
    client.start(PATIENCE_S)
    try:
        paths = ["/"]
        while paths:
            path = paths.pop()
            data, _ = client.get(path)
            yield f"znode {path}", path + (data or b"").decode(errors="replace")
            paths += [f"{path.rstrip('/')}/{one}" for one in client.get_children(path)]
    finally:
        client.stop()
        client.close()


def _configs(cluster: Cluster) -> Iterator[tuple[str, str]]:
    admin = AdminClient({"bootstrap.servers": cluster.kafka()})
    wanted = [ConfigResource(ConfigResource.Type.BROKER, name) for name in ("1",)]
    for resource, described in admin.describe_configs(wanted).items():
        found = described.result(PATIENCE_S)
        assert "ssl.key.password" in found
        yield (
            f"DescribeConfigs of {resource}",
            "\n".join(f"{name}={one.value}" for name, one in found.items()),
        )


def _bundle(cluster: Cluster, path: Path) -> Iterator[tuple[str, str]]:
    argv = [*COMMAND, "debug", "bundle", "--to", str(path), "--bootstrap", cluster.kafka()]
    environment = {**os.environ, "TIDEMARK_DIR": str(cluster.layout.directory)}
    subprocess.run(argv, env=environment, capture_output=True, timeout=PATIENCE_S, check=True)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield f"bundle {name}", archive.read(name).decode(errors="replace")
