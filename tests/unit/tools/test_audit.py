from typing import Any

import pytest
from audit import NOT_CHECKED, VULNERABLE, Findings, findings, verdict

pytestmark = pytest.mark.feature("SE28")

SOUND: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
UNKNOWN = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited"}
WRONG = {
    "name": "c",
    "version": "3",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["4"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def of(*packages: dict[str, Any]) -> Findings:
    return findings({"dependencies": packages, "fixes": []})


def test_a_report_is_read() -> None:
    assert of(SOUND, UNKNOWN, WRONG) == Findings(
        2, ("b",), ("c 3: PYSEC-1, fixed by 4", "c 3: PYSEC-2, fixed by no release")
    )


def test_only_what_was_checked_is_green() -> None:
    assert verdict("r", of(SOUND)) == (0, "r: 1 packages checked, no known vulnerability")
    for packages in ((SOUND, UNKNOWN), (UNKNOWN,), ()):
        code, text = verdict("r", of(*packages))
        assert code == NOT_CHECKED
        assert "NOT CHECKED" in text


def test_a_vulnerability_counts_more_than_what_was_not_checked() -> None:
    code, text = verdict("r", of(UNKNOWN, WRONG))
    assert code == VULNERABLE
    assert "c 3: PYSEC-1, fixed by 4" in text
