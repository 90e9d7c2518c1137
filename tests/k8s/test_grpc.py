"""Clients over gRPC in a cluster: with a login at the brokers' listener GRPC."""

import subprocess
from typing import Final

import pytest
from k8s.release import Release, is_running
from lab.settings import environment

ADDRESS: Final = "{0}-bootstrap.{0}.svc.cluster.local:9792"
PRODUCE: Final = """
import pathlib, sys
from tidemark.client import sync
servers, word = sys.argv[1:]
password = pathlib.Path("/etc/tidemark-super-user/password").read_text().strip() + word
login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "admin"}
tls = {"sasl_password": password, "ssl_ca_location": "/etc/tidemark-certificate/ca.crt"}
with sync.Producer(servers, transport="grpc", delivery_timeout_ms=60_000, **login, **tls) as it:
    print(it.send("over-grpc", b"value", partition=0))
"""


def produce(release: Release, word: str) -> "subprocess.CompletedProcess[str]":
    """Produce in a pod of a controller, with a word after the password."""
    running = [pod["metadata"]["name"] for pod in release.pods("controller") if is_running(pod)]
    argv = ["kubectl", "-n", release.name, "exec", running[0], "--", "python3", "-P", "-c", PRODUCE]
    argv += [ADDRESS.format(release.name), word]
    return subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.feature("KU05", "SE29")
def test_a_client_over_grpc_logs_in_and_a_wrong_password_is_refused(release: Release) -> None:
    release.tidemark("topic", "create", "over-grpc", "--if-not-exists")
    accepted = produce(release, "")
    assert "over-grpc" in accepted.stdout, accepted.stderr
    refused = produce(release, "-wrong")
    assert refused.returncode != 0
    assert "SASL_AUTHENTICATION_FAILED" in refused.stderr


@pytest.mark.feature("SE29")
def test_the_configuration_for_spark_jobs_names_the_listener(release: Release) -> None:
    text = release.secret(f"{release.name}-client", "client.spark.properties")
    assert f"bootstrap.servers={ADDRESS.format(release.name)}\n" in text
    assert "grpc.security.protocol=SASL_SSL\n" in text
