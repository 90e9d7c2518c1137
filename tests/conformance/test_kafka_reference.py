"""Names, types, defaults and versions beside ours are those of Kafka's own classes. Run by ``make
conformance``.
"""

import os

import pytest
from conformance.java_programs import build
from kafka_apis import kafka_apis
from kafka_settings import kafka_settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MODES = {"": "read-only", "broker": "per-broker", "cluster": "cluster-wide"}


@pytest.mark.skipif("KAFKA_VERSION" in os.environ, reason="the reference is of one version")
def test_the_reference_has_what_kafka_has() -> None:
    facts = build().facts("Reference")
    settings = {
        f"{one.owner} {one.name}": f"{one.kind} {MODES[one.dynamic]} {one.default}"
        if one.owner == "broker"
        else f"{one.kind} read-only {one.default}"
        for one in kafka_settings()
    }
    apis = {
        f"api {one.key} {one.name}": f"{one.version_min} {one.version_max}" for one in kafka_apis()
    }
    assert facts == settings | apis
