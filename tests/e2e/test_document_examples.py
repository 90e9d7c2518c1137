"""The Python examples of docs/clients.md run as they stand, against real brokers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.clusters import Cluster
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e]

DOCUMENT = Path(__file__).parents[2] / "docs/clients.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.feature("Y01")
def test_the_examples_for_clients_run(cluster: Cluster) -> None:
    for number, example in enumerate(EXAMPLES):
        code = example.replace("127.0.0.1:9092", cluster.kafka())
        code = code.replace("127.0.0.1:9292", cluster.grpc())
        command = [sys.executable, "-W", "error", "-c", code]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert run.returncode == 0, f"example {number}:\n{run.stderr}"
