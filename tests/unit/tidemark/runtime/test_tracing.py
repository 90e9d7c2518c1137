"""Tracing is an extra: nothing of it is imported while it is off, and its absence is explained."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tidemark.runtime.service import ServiceError
from tidemark.runtime.tracing import make_traces

LOOK = "import sys, broker.process; sys.exit('opentelemetry' in str(sorted(sys.modules)))"


@pytest.mark.feature("AD82")
def test_a_broker_imports_nothing_of_opentelemetry_until_it_is_switched_on() -> None:
    subprocess.run([sys.executable, "-c", LOOK], check=True)


def test_without_the_packages_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(ServiceError, match="pip install opentelemetry-sdk"):
        make_traces("broker")


def test_spans_are_written_to_a_file_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "spans"
    traces = make_traces("broker", file=str(path))
    for name in ("one", "two"):
        traces.tracer.start_span(name).end()
    traces.close()
    lines = path.read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["one", "two"]
