"""The tests on a cluster run every section of docs/operating/kubernetes.md that has commands."""

import re

from k8s.runbook import sections
from lab.settings import ROOT


def test_every_section_with_commands_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests/k8s").glob("test_*.py"))
    run = set(re.findall(r'Runbook\(\s*"([^"]+)"', tests))
    assert sections().keys() - run == set()
    assert run - sections().keys() == set()


def test_commands_are_found_below_their_heading() -> None:
    assert sections()["Uninstall"][0].startswith("helm uninstall demo --namespace log")


def test_what_is_not_a_command_is_not_found() -> None:
    found = [command for commands in sections().values() for command in commands]
    assert {command.split()[0] for command in found} == {"helm", "kubectl", "tidemark"}
