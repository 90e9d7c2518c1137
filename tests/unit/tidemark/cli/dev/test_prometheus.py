"""Prometheus of a development cluster: its configuration, and a clear error without it."""

from pathlib import Path

import pytest
from tidemark.cli.dev.layout import Layout, Ports, Shape
from tidemark.cli.dev.prometheus import configuration, prometheus_argv
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode


def layout(directory: Path) -> Layout:
    shape = Shape(2, 2, Ports(), 1, 1, has_prometheus=True)
    return Layout(directory, shape)


@pytest.mark.feature("AD81")
def test_without_prometheus_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = layout(tmp_path)
    with pytest.raises(CommandError, match="prometheus is not installed") as caught:
        prometheus_argv(cluster, cluster.member("prometheus"))
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    assert "apt-get install prometheus" in str(caught.value.hint)


@pytest.mark.feature("AD81")
def test_every_process_is_a_target_under_its_name(tmp_path: Path) -> None:
    jobs = configuration(layout(tmp_path))["scrape_configs"]
    assert isinstance(jobs, list)
    names = [one["labels"]["instance"] for job in jobs for one in job["static_configs"]]
    expected = [one.name for one in layout(tmp_path).members()]
    assert set(names) == set(expected) - {"zookeeper", "prometheus"}
    assert [job["job_name"] for job in jobs][:2] == ["tidemark-controller", "tidemark-broker"]


def test_prometheus_is_a_process_only_where_it_is_wanted(tmp_path: Path) -> None:
    plain = Layout(tmp_path, Shape(2, 2, Ports()))
    assert "prometheus" not in [one.name for one in plain.members()]
    assert layout(tmp_path).member("prometheus").ports == {"web": 9090}
