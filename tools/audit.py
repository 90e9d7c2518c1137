"""Ask a vulnerability service about every locked dependency, with pip-audit.

    exit code 0   every dependency was checked, and none has a known vulnerability
              1   there are known vulnerabilities
             69   some or all could not be checked

pip-audit itself ends with 0 when the service does not know a package, as behind a mirror that
serves packages alone. Here that is no success. With ``--where-reachable``, for machines that may
have no access, 69 becomes 0, and the message stays.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PIP_AUDIT: Final = ROOT / "build" / "audit" / "bin" / "pip-audit"
REQUIREMENTS: Final = ("runtime.txt", "dev.txt")
VULNERABLE: Final = 1
NOT_CHECKED: Final = 69
_TIMEOUT_S: Final = 300


class Findings(NamedTuple):
    """What a report says about one file of requirements."""

    checked: int
    skipped: tuple[str, ...]
    """Packages that the service does not know."""
    vulnerabilities: tuple[str, ...]
    """A line for each."""


def findings(report: Mapping[str, Any]) -> Findings:
    """Read pip-audit's JSON report."""
    skipped, lines, checked = [], [], 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            skipped.append(str(package["name"]))
            continue
        checked += 1
        for one in package["vulns"]:
            fixed = ", ".join(one["fix_versions"]) or "no release"
            lines.append(f"{package['name']} {package['version']}: {one['id']}, fixed by {fixed}")
    return Findings(checked, tuple(skipped), tuple(lines))


def verdict(name: str, found: Findings) -> tuple[int, str]:
    """Return the exit code for one file, and what to print."""
    if found.vulnerabilities:
        return VULNERABLE, f"{name}: VULNERABLE\n  " + "\n  ".join(found.vulnerabilities)
    total = found.checked + len(found.skipped)
    if found.skipped or not total:
        return NOT_CHECKED, (
            f"{name}: NOT CHECKED: the vulnerability service does not know {len(found.skipped)} of"
            f" {total} packages; run `make audit` where it can be reached"
        )
    return 0, f"{name}: {total} packages checked, no known vulnerability"


def audit(requirements: Path) -> tuple[int, str]:
    """Run pip-audit over one locked file."""
    argv = [str(PIP_AUDIT), "-r", str(requirements), "--require-hashes", "--disable-pip"]
    done = subprocess.run(
        [*argv, "--progress-spinner", "off", "-f", "json"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return NOT_CHECKED, f"{requirements.name}: NOT CHECKED: {reason}"
    return verdict(requirements.name, findings(report))


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit all files; return the exit code."""
    parser = argparse.ArgumentParser(prog="audit", description="Known vulnerabilities.")
    parser.add_argument(
        "--where-reachable",
        action="store_true",
        help="end with 0 if the vulnerability service cannot be reached",
    )
    given = parser.parse_args(arguments)
    codes = set()
    for name in REQUIREMENTS:
        code, text = audit(ROOT / "requirements" / name)
        print(text)
        codes.add(code)
    if VULNERABLE in codes:
        return VULNERABLE
    return 0 if given.where_reachable else max(codes)


if __name__ == "__main__":
    sys.exit(main())
