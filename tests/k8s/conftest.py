"""Tests on a real Kubernetes cluster: that of `make k8s-up`. They are skipped where none is up."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from k8s.release import FIRST_NODE_PORT, Release, write_values
from lab.settings import ROOT, STATE

FIGURES = ROOT / "build/k8s-figures.json"
EXTERNAL = {"type": "NodePort", "firstNodePort": FIRST_NODE_PORT}

Measure = Callable[[str, float], None]


@pytest.fixture(autouse=True, scope="session")
def _cluster_is_up() -> None:
    if not (STATE / "admin.yaml").exists():
        pytest.skip("no Kubernetes cluster is up: make k8s-up (root, Go; 20 minutes once)")


@pytest.fixture(scope="session")
def measured() -> Iterator[Measure]:
    """Keep figures; print them, and write them to a file at the end."""
    figures: dict[str, float] = {}
    yield lambda name, seconds: figures.update({name: round(seconds, 2)})
    print(json.dumps(figures, indent=2))
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


@contextmanager
def timed(measured: Measure, name: str) -> Iterator[None]:
    """Keep the time of a block as a figure."""
    begun = time.monotonic()
    yield
    measured(name, time.monotonic() - begun)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release that is reached from outside by NodePort; made once, and left as it was."""
    made = Release("demo")
    made.install(write_values(tmp_path_factory.mktemp("k8s") / "values.yaml", external=EXTERNAL))
    made.wait_ready()
    made.wait_updated()  # the pods of a release that was there, with another chart
    return made
