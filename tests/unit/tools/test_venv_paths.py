"""What an interpreter of the environment finds, and what it no longer does."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from waiting import PATIENCE_S

TOOL = Path(__file__).parents[3] / "tools/venv_paths.py"


def path_of_an_interpreter(site_packages: Path, given: list[str]) -> list[str]:
    """Its ``sys.path``, where it was started with ``given`` in front, as spark-submit starts it."""
    program = (
        f"import json, site, sys; sys.path[:0] = {given!r};"
        f" site.addsitedir({str(site_packages)!r}); print(json.dumps(sys.path))"
    )
    argv = [sys.executable, "-S", "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    found: list[str] = json.loads(done.stdout)
    return found


def test_generated_code_is_found_and_the_zip_of_pyspark_is_not(tmp_path: Path) -> None:
    write: Callable[[Path], Path] = runpy.run_path(str(TOOL))["write"]
    write(tmp_path)
    given = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-src.zip"]
    found = path_of_an_interpreter(tmp_path, given)
    assert found[0] == given[1]
    assert given[0] not in found
    assert str(TOOL.parents[1] / "gen") in found
