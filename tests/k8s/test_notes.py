"""What the chart prints after an installation: every command of it works as it is printed."""

import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL
from k8s.release import Client, Release, run, write_values
from lab.settings import environment
from waiting import PATIENCE_S

PROGRAMS: Final = ("kubectl ", "helm ", "tidemark ")
READY: Final = "https://127.0.0.1:8443/readyz"


def commands(notes: str) -> list[str]:
    """The indented lines that begin with a program."""
    found = [line.strip() for line in notes.splitlines() if line.startswith("  ")]
    return [line for line in found if line.startswith(PROGRAMS)]


def answers(url: str, authority: Path) -> bool:
    """True once the port is forwarded to a controller that is ready, with a certificate of the
    authority.
    """
    trusted = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S, context=trusted) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.feature("KU22")
def test_every_command_of_the_notes_works(release: Release, tmp_path: Path) -> None:
    notes = release.install(write_values(tmp_path / "values.yaml", external=EXTERNAL))
    release.wait_updated()
    if release.says("topic", "describe", "first"):
        release.tidemark("topic", "delete", "first", "--yes")
    found = commands(notes)
    for command in found:
        if "port-forward" in command:
            with subprocess.Popen(command.split(), env=environment()) as forward:
                try:
                    wait_for(lambda: answers(READY, tmp_path / "ca.crt"), command)
                finally:
                    forward.terminate()
        else:
            run("sh", "-c", f"cd {tmp_path} && {command}")
    assert {command.split()[0] for command in found} == {"kubectl", "helm"}
    assert any("port-forward" in command for command in found)
    assert any("logs job/" in command for command in found)
    text = (tmp_path / "client.conf").read_text()
    client: Client = dict(line.partition("=")[::2] for line in text.splitlines())
    client |= {"bootstrap.servers": release.outside, "ssl.ca.location": str(tmp_path / "ca.crt")}
    assert "first" in AdminClient(client).list_topics(timeout=PATIENCE_S).topics
    assert "ScramLoginModule" in (tmp_path / "client.properties").read_text()
