"""Two minutes of chaos, transactions included: real processes, real faults, and every promise
checked at the end.
"""

import os
import secrets
from pathlib import Path
from typing import Final

import pytest
from chaos.report import EXIT_HELD
from chaos.run import Options, run

SECONDS: Final = 120.0
LIMIT_S: Final = 600
"""Faults that are under way are ended, the cluster heals, and all is read back."""


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.feature("G09", "G24", "H04", "H05", "H08", "I10", "J10", "C08")
@pytest.mark.feature("N01", "N02", "N03", "N04", "L04", "L05", "H15")
def test_two_minutes_of_faults_lose_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
    outcome = run(Options(seed, SECONDS), tmp_path, lambda line: print(line, flush=True))
    print(*outcome.report.lines(), *outcome.steps, sep="\n")
    assert outcome.report.exit_code() == EXIT_HELD, "\n".join(outcome.report.lines())
