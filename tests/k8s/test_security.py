"""Certificates and logins of a release: refused clients, upgrades, renewal."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from cryptography import x509
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL
from k8s.load import Load
from k8s.release import FIRST_NODE_PORT, Release, write_values
from k8s.test_roll import load
from waiting import PATIENCE_S

__all__ = ["load"]


def secrets(release: Release) -> dict[str, dict[str, str]]:
    """Every Secret that the chart's Job has made."""
    label = f"app.kubernetes.io/instance={release.name}"
    return {it["metadata"]["name"]: it["data"] for it in release.objects("secrets", "-l", label)}


def shown(release: Release) -> x509.Certificate:
    """The certificate that a broker shows to a client outside."""
    trusted = ssl.create_default_context(cadata=release.secret(f"{release.name}-client", "ca.crt"))
    host = release.pods("broker")[0]["status"]["hostIP"]
    with (
        socket.create_connection((host, FIRST_NODE_PORT), PATIENCE_S) as plain,
        trusted.wrap_socket(plain, server_hostname=host) as secured,
    ):
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)


@pytest.mark.feature("KU05", "KU09", "SE29")
def test_outside_a_wrong_password_and_another_authority_get_nobody_in(release: Release) -> None:
    good = release.client()
    assert AdminClient(good).list_topics(timeout=PATIENCE_S).brokers
    errors: list[KafkaError] = []
    guess: dict[str, Any] = {**good, "sasl.password": "guessed", "error_cb": errors.append}
    wrong = AdminClient(guess)
    wait_for(lambda: bool(wrong.poll(1)) or bool(errors), "no error of a wrong password")
    assert errors[0].code() == KafkaError._AUTHENTICATION
    refused: list[KafkaError] = []
    without: dict[str, Any] = {"bootstrap.servers": release.outside, "error_cb": refused.append}
    plain = AdminClient(without)
    wait_for(lambda: bool(plain.poll(1)) or bool(refused), "no error without TLS")


@pytest.mark.feature("KU06", "SE29")
def test_an_upgrade_keeps_every_secret(release: Release, tmp_path: Path) -> None:
    before = secrets(release)
    assert f"{release.name}-broker-tls" in before
    changed = {"txnCoordinator": {"config": {"log.level": "DEBUG"}}}
    number = release.revision()
    release.install(write_values(tmp_path / "v.yaml", external=EXTERNAL, **changed))
    release.wait_updated()
    assert secrets(release) == before
    release.rollback(number)
    release.wait_updated()
    assert secrets(release) == before


@pytest.mark.feature("KU06", "SE29")
def test_helm_refuses_a_given_secret_that_is_missing_or_lacks_its_key(
    release: Release, tmp_path: Path
) -> None:
    number = release.revision()
    given = write_values(
        tmp_path / "v.yaml", external=EXTERNAL, auth={"existingSecret": "own-password"}
    )
    with pytest.raises(AssertionError, match=f"namespace {release.name} does not have"):
        release.install(given)
    release.kubectl("create", "secret", "generic", "own-password", "--from-literal=user=admin")
    try:
        with pytest.raises(AssertionError, match="own-password, which has no key password"):
            release.install(given)
    finally:
        release.kubectl("delete", "secret", "own-password")
    assert release.revision() == number


@pytest.mark.feature("SE29")
def test_certificates_are_replaced_under_load_without_a_restart(
    release: Release, load: Load
) -> None:
    before, before_pods = shown(release), {it["metadata"]["uid"] for it in release.pods()}
    with load:
        wait_for(lambda: len(load.acknowledged) > 100)
        for component in ("broker", "controller", "zookeeper"):
            release.kubectl("delete", "secret", f"{release.name}-{component}-tls")
        release.kubectl("delete", "job", "renew", "--ignore-not-found")
        release.kubectl("create", "job", "renew", f"--from=cronjob/{release.name}-renewal")
        wait_for(lambda: shown(release).serial_number != before.serial_number)
        seen = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > seen + 100)
        release.wait_says("cluster", "health")
    load.check()
    sets = {it["metadata"]["uid"] for it in release.pods()}
    assert before_pods <= sets
