"""Prometheus for an embedded cluster: Debian's, configured for every process."""

import http.client
import json
import shutil
from pathlib import Path
from typing import Final

from tidemark.cli.dev.layout import HOST, PROMETHEUS, Layout, Member
from tidemark.cli.dev.secure import ADMIN, SecureFiles
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

SCRAPE_SECONDS: Final = 5
_TIMEOUT_SECONDS: Final = 2.0
_RULES: Final = Path(__file__).parents[4] / "monitoring/alerts.yaml"
"""Alert rules of a checkout; an installed package has none."""


def find_prometheus() -> str:
    """Return the path of the program. Raises CommandError if it is not installed."""
    found = shutil.which("prometheus")
    if found is None:
        raise CommandError(
            "prometheus is not installed, which --metrics needs",
            hint="apt-get install prometheus (and stop the service that this starts),"
            " or leave --metrics out",
            code=ExitCode.UNAVAILABLE,
        )
    return found


def prometheus_argv(layout: Layout, member: Member) -> list[str]:
    """Write the configuration, and return the command that starts Prometheus. Raises
    CommandError.
    """
    program = find_prometheus()
    data = layout.data_path(member.name)
    data.mkdir(parents=True, exist_ok=True)
    config = layout.run_directory / "prometheus.yaml"
    # JSON is YAML, and quotes every value as it must be.
    config.write_text(json.dumps(configuration(layout), indent=2) + "\n", encoding="utf-8")
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=2d",
        f"--web.listen-address={HOST}:{member.ports['web']}",
        "--log.level=warn",
    ]


def configuration(layout: Layout) -> dict[str, object]:
    """Return a configuration with one job for each kind of process."""
    jobs: dict[str, list[Member]] = {}
    for member in layout.members():
        if "ops" in member.ports or "rest" in member.ports:
            jobs.setdefault(member.kind, []).append(member)
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "15s"},
        "rule_files": [str(_RULES)] if _RULES.is_file() else [],
        "scrape_configs": [
            {
                "job_name": f"tidemark-{kind}",
                "static_configs": [_target(one) for one in members],
                **(_login(layout) if kind == "controller" else {}),
            }
            for kind, members in jobs.items()
        ],
    }


def _login(layout: Layout) -> dict[str, object]:
    """Return how a secure cluster's controllers are asked, whose metrics are at REST."""
    if not layout.shape.is_secure:
        return {}
    files = SecureFiles.of(layout)
    return {
        "scheme": "https",
        "tls_config": {"ca_file": str(files.ca)},
        "basic_auth": {"username": ADMIN, "password_file": str(files.password(ADMIN))},
    }


def _target(member: Member) -> dict[str, object]:
    port = member.ports.get("ops") or member.ports["rest"]
    return {"targets": [f"{HOST}:{port}"], "labels": {"instance": member.name}}


def prometheus_problem(member: Member) -> str | None:
    """Return why Prometheus is not ready; None if it is."""
    assert member.kind == PROMETHEUS, member.kind
    port = member.ports["web"]
    connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/-/ready")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"/-/ready on port {port}: {error}"
    finally:
        connection.close()
    return None if status == http.client.OK else f"/-/ready on port {port}: status {status}"
