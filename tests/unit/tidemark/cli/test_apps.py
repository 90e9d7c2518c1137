"""What a command imports: the command line starts fast."""

import subprocess
import sys

import pytest
import typer
from tidemark.cli.main import GROUPS, app

HEAVY = frozenset(
    ("asyncio", "crc32c", "cramjam", "google", "grpc", "kazoo", "lz4", "numpy", "prometheus_client")
) | {"pyarrow", "pydantic", "pygments", "rich", "ssl", "uvicorn", "uvloop", "yaml", "zstandard"}
OURS = frozenset(("tidemark.client", "tidemark.kafka", "tidemark.codec", "tidemark.storage"))
RECORDS = frozenset(
    f"tidemark.client.{name}" for name in ("producer.producer", "consumer.consumer", "share")
)
PROGRAM = """\
import sys
sys.argv = ["tidemark", *sys.argv[1:]]
from tidemark.cli.main import main
try:
    main()
except SystemExit:
    pass
sys.stderr.write("\\nmodules " + " ".join(sys.modules))
"""


def imported(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    return set(done.stderr.rpartition("\nmodules ")[2].split())


@pytest.mark.feature("AD50")
@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("nothing",), ("topic", "--help"), ("dev", "-h")]
)
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    assert imported(*words) & (HEAVY | OURS) == set()


@pytest.mark.feature("AD50")
def test_help_of_the_root_imports_no_group() -> None:
    modules = {place.module for place in GROUPS.values()}
    assert imported("--help") & modules == set()
    assert imported("topic", "--help") & modules == {GROUPS["topic"].module}


@pytest.mark.feature("AD50")
def test_administration_imports_no_producer_no_table_library_and_no_grpc() -> None:
    modules = imported("topic", "list", "-b", "127.0.0.1:1")
    assert "tidemark.client.admin.cluster_admin" in modules
    others = {"tidemark.client.admin.groups", "rich", "grpc", "yaml", "pydantic", "lz4", "crc32c"}
    assert modules & (RECORDS | others) == set()


@pytest.mark.parametrize("name", GROUPS)
def test_the_root_knows_the_help_of_each_group(name: str) -> None:
    root = typer.main.get_command(app)
    group = root.commands[name]  # type: ignore[attr-defined]
    assert group.help == GROUPS[name].purpose
