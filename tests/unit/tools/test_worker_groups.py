"""Which tests of a run on several workers belong together, and when what they share ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import worker_groups
from waiting import COMMAND_S

TESTS = Path(worker_groups.__file__).parent
CONFTEST = """
import os
import pytest
import worker_groups

def write(line):
    with open(os.environ["RECORD"], "a") as file:
        file.write(f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')} {line}\\n")

def pytest_configure(config):
    config.addinivalue_line("markers", "long: begins early")
    worker_groups.begin(config)

@pytest.fixture(scope="session", autouse=True)
def always():
    yield

@pytest.fixture(scope="session")
def cluster():
    write("cluster begins")
    yield
    write("cluster ends")

@pytest.fixture(scope="session")
def browser():
    yield
    write("browser ends")

@pytest.fixture(autouse=True, scope="module")
def module(request):
    write(f"{request.node.path.name} begins")
    yield
    write(f"{request.node.path.name} ends")
"""
MODULES = {
    "test_a": "def test_it(): pass\ndef test_more(): pass",
    "test_b": "def test_it(cluster): pass",
    "test_c": "def test_it(browser): pass",
    "test_d": "import pytest\n@pytest.mark.long\ndef test_it(): pass",
    "test_e": "def test_it(cluster): pass\ndef test_more(cluster): pass",
    "test_f": "def test_it(): pass",
}

BY_GROUPS = ("--dist", "loadfile", "--no-loadscope-reorder")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tests, two of which share what costs."""
    directory = tmp_path_factory.mktemp("suite")
    directory.joinpath("pytest.ini").write_text("[pytest]\n")
    tests = directory / "tests"
    tests.mkdir()
    tests.joinpath("conftest.py").write_text(CONFTEST)
    for name, text in MODULES.items():
        tests.joinpath(f"{name}.py").write_text(text)
    return directory


def lines_of(suite: Path, record: Path, *options: str) -> list[str]:
    """What the fixtures of a run wrote: who, what, whether it begins."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    environment = {key: os.environ[key] for key in os.environ if not key.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(TESTS), "RECORD": str(record)}
    done = subprocess.run(
        [*argv, *options],
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return record.read_text().splitlines()


def test_what_tests_share_ends_with_the_last_of_them(suite: Path, tmp_path: Path) -> None:
    lines = lines_of(suite, tmp_path / "record")
    assert lines.index("alone browser ends") < lines.index("alone test_d.py begins")
    # It ends after the fixtures of the last module that uses it.
    at = lines.index("alone cluster ends")
    assert lines.index("alone test_e.py begins") < at < lines.index("alone test_f.py begins")
    assert lines.count("alone cluster begins") == 1


def test_tests_that_share_something_run_in_one_worker(suite: Path, tmp_path: Path) -> None:
    lines = lines_of(suite, tmp_path / "record", "-n", "2", *BY_GROUPS)
    worker_of = {line.split()[1]: line.split()[0] for line in lines if line.endswith("begins")}
    assert lines.count(f"{worker_of['cluster']} cluster ends") == 1
    assert worker_of["test_b.py"] == worker_of["test_e.py"] == worker_of["cluster"]
    assert worker_of.keys() >= {f"{name}.py" for name in MODULES}


def test_groups_begin_first_and_then_what_takes_long(suite: Path, tmp_path: Path) -> None:
    lines = lines_of(suite, tmp_path / "record", "-n", "1", *BY_GROUPS)
    begun = [line.split()[1] for line in lines if line.endswith(".py begins")]
    assert begun == [f"test_{name}.py" for name in "becdaf"]


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ({}, []),
        ({"cluster": "ab", "jvm": "cd"}, [{"cluster"}, {"jvm"}]),
        ({"cluster": "ab", "jvm": "bc", "build": "d"}, [{"cluster", "jvm"}, {"build"}]),
        ({"cluster": "ab", "jvm": "cd", "both": "bc"}, [{"cluster", "jvm", "both"}]),
    ],
)
def test_fixtures_with_a_module_in_common_are_joined(
    users: dict[str, str], expected: list[set[str]]
) -> None:
    found = sorted(map(sorted, worker_groups.joined(users)))
    assert found == sorted(map(sorted, expected))
