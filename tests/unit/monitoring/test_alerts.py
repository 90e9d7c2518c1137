"""Alert rules: each has a test in which it fires and one in which it does not, and a page."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from promtool import needs_promtool, promtool

ROOT = Path(__file__).parents[3]
RULES = ROOT / "monitoring/alerts.yaml"
TESTS = ROOT / "monitoring/alerts_test.yaml"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_an_alert_has_a_name_of_its_own() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) > 10


@pytest.mark.feature("AD79")
@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do_and_names_a_page(rule: dict[str, Any]) -> None:
    notes = rule["annotations"]
    assert set(notes) == {"summary", "action", "docs"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert len(notes["action"].split()) > 3
    page = (ROOT / notes["docs"]).read_text()
    assert page.startswith("# ")


@pytest.mark.feature("AD79")
def test_each_alert_is_tested_while_it_fires_and_while_it_does_not() -> None:
    expected: dict[str, list[int]] = {rule["alert"]: [] for rule in alerts()}
    for case in yaml.safe_load(TESTS.read_text())["tests"]:
        for look in case["promql_expr_test"]:
            found = re.search(r'alertname="(\w+)"', look["expr"])
            assert found is not None, look
            expected[found[1]].append(look["exp_samples"][0]["value"])
    cases = {name: len(values) // 2 for name, values in expected.items()}
    assert expected == {name: [0, 1] * max(1, count) for name, count in cases.items()}


def test_every_metric_that_the_page_says_to_alert_on_has_a_rule() -> None:
    page = (ROOT / "docs/operating/monitor.md").read_text()
    table = page.split("**Alert on these.**")[1].split("\n\n")[1]
    named = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    rules = " ".join(rule["expr"] for rule in alerts())
    assert len(named) > 20
    assert [name for name in named if not re.search(rf"\b{name}\b", rules)] == []


@pytest.mark.parametrize("name", ["TidemarkTransactionHangs", "TidemarkStableOffsetBehind"])
def test_an_alert_on_open_transactions_names_the_command_that_shows_them(name: str) -> None:
    # `txn list --hanging` leaves out what a coordinator knows, and these may be known.
    (rule,) = (rule for rule in alerts() if rule["alert"] == name)
    assert "`tidemark txn holders`" in rule["annotations"]["action"]


def test_the_alert_on_an_old_transaction_names_the_list_that_has_it_without_records_too() -> None:
    # A batch of a sink may be kept alive before it has written: it holds no partition.
    (rule,) = (rule for rule in alerts() if rule["alert"] == "TidemarkTransactionHangs")
    (old_ms,) = re.findall(r"--min-duration-ms (\d+)`", rule["annotations"]["action"])
    assert rule["expr"].endswith(f"> {int(old_ms) // 1_000}")


@needs_promtool
@pytest.mark.feature("AD79")
def test_the_rules_do_what_their_tests_say() -> None:
    assert "SUCCESS" in promtool("test", "rules", TESTS)


@needs_promtool
def test_a_rule_that_never_fires_fails_its_test(tmp_path: Path) -> None:
    broken = RULES.read_text().replace("tidemark_lease_held == 0", "tidemark_lease_held == 2")
    (tmp_path / "alerts.yaml").write_text(broken)
    (tmp_path / "alerts_test.yaml").write_text(TESTS.read_text())
    with pytest.raises(AssertionError, match="TidemarkLeaseLost"):
        promtool("test", "rules", tmp_path / "alerts_test.yaml")
