"""Two minutes of chaos, transactions included: real processes, real faults, and every promise
checked at the end.
"""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from chaos.report import EXIT_HELD
from waiting import COMMAND_S

MINUTES: Final = 2
LIMIT_S: Final = COMMAND_S
"""Only a run that hangs takes so long: faults are ended, the cluster heals, all is read back."""
_STACKS_S: Final = 5
_END_S: Final = 60


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.feature("G09", "G24", "H04", "H05", "H08", "I10", "J10", "C08")
@pytest.mark.feature("N01", "N02", "N03", "N04", "L04", "L05", "H15", "S16", "S30", "S31", "V04")
def test_two_minutes_of_faults_lose_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
    told = tmp_path / "told.txt"
    argv = [sys.executable, "-m", "chaos", "--minutes", str(MINUTES), "--seed", str(seed)]
    with told.open("wb") as output:
        process = subprocess.Popen(
            [*argv, "--directory", str(tmp_path / "cluster")],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=output,
            stderr=output,
        )
        code = _ended(process)
    text = told.read_text(errors="replace")
    print(text)
    assert code == EXIT_HELD, text[-4_000:]


def _ended(process: subprocess.Popen[bytes]) -> int | str:
    """Its exit code. A run that never ends shows its stacks, and is ended with its cluster."""
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
    for number, wait_s in ((0, _STACKS_S), (signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
        process.send_signal(number)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
        break
    return f"not over after {LIMIT_S:.0f} s"
