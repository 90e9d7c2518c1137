"""The list of compiled modules, and what a process says of its build."""

import shutil
from pathlib import Path

import pytest
from compiled.build import PACKAGES, ROOT, key
from compiled.modules import COMPILED, INTERPRETED, sources
from tidemark.runtime.build import build_text, is_compiled

pytestmark = pytest.mark.feature("Y16")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tree")
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, made / Path(folder).name)
    return made


@pytest.mark.parametrize("pattern", COMPILED)
def test_every_pattern_finds_modules(tree: Path, pattern: str) -> None:
    assert list(tree.glob(pattern))


def test_modules_that_stay_interpreted_exist_and_are_left_out(tree: Path) -> None:
    found = {str(path.relative_to(tree)) for path in sources(tree)}
    assert [name for name in INTERPRETED if not (tree / name).is_file()] == []
    assert found.isdisjoint(INTERPRETED)
    assert "broker/core/partition.py" in found


def test_a_tree_is_kept_by_what_goes_into_it() -> None:
    assert key() == key()
    assert len(key()) == 16


def test_a_process_says_what_it_runs() -> None:
    kind = "compiled" if is_compiled() else "interpreted"
    assert build_text().startswith(f"{kind}, Python 3.")
