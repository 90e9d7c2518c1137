"""docs/acceptance.md and the tests agree: an id marked done has a test that runs, where it says."""

import re

import pytest
from tidy.proofs import INSIDE, OUTSIDE, PLACES, ROOT, SIMULATED, features_in, place_of, proofs

ROW = re.compile(r"^\| ([A-Z]{1,2}\d{1,2}) \| (\w+) \| ([a-z-]+) \| (.+) \|$", re.MULTILINE)
STATES = ("done", "part", "later")
NOWHERE = "-"


def rows() -> dict[str, tuple[str, str, str]]:
    """State, place and words by feature id."""
    text = (ROOT / "docs/acceptance.md").read_text()
    return {feature: (state, place, words) for feature, state, place, words in ROW.findall(text)}


def best_place(feature: str) -> str:
    """The first of PLACES in which a test proves the feature."""
    found = proofs().get(feature, set())
    return next((place for place in PLACES if place in found), NOWHERE)


def test_every_line_of_the_table_can_be_read() -> None:
    lines = (ROOT / "docs/acceptance.md").read_text().splitlines()
    ids = [line.split()[1] for line in lines if re.match(r"\| [A-Z]{1,2}\d", line)]
    assert len(ids) == len(set(ids))
    assert ids == list(rows())
    assert {state for state, _, _ in rows().values()} <= set(STATES)


def test_every_id_marked_done_has_a_test_that_names_it_and_runs() -> None:
    done = {feature for feature, (state, _, _) in rows().items() if state == "done"}
    assert {feature for feature in done if best_place(feature) == NOWHERE} == set()


def test_every_id_is_proved_where_the_table_says() -> None:
    told = {feature: place for feature, (_, place, _) in rows().items()}
    assert told == {feature: best_place(feature) for feature in told}


def test_an_id_that_holds_in_part_says_what_is_missing() -> None:
    parts = {feature: words for feature, (state, _, words) in rows().items() if state == "part"}
    assert [one for one, words in parts.items() if "missing: " not in words] == []


def test_every_id_a_test_names_is_in_the_list() -> None:
    assert proofs().keys() - rows().keys() == set()


@pytest.mark.parametrize("figure", ["600 MB/s", "100 KB/s", "28 to 30 GB", "10 GB", "10 ms"])
def test_the_documents_quote_the_figures_behind_the_design(figure: str) -> None:
    assert figure in (ROOT / "docs/performance.md").read_text()


def test_the_documents_say_when_availability_comes_before_safety() -> None:
    text = " ".join((ROOT / "docs/replication.md").read_text().split())
    assert "can neither retry nor keep what it sends, availability may matter more" in text


MARK = '@pytest.mark.feature("A01")\n'
RUNS = "def test_it():\n    assert look()\n"


@pytest.mark.parametrize(
    "text",
    [
        MARK + RUNS,
        MARK + "@pytest.mark.skipif(shutil.which('kcat') is None, reason='no kcat')\n" + RUNS,
        MARK + "@pytest.mark.xfail(sys.platform == 'x', reason='there')\n" + RUNS,
        MARK + "def test_it():\n    if not look():\n        pytest.skip('no disk')\n    see()\n",
        "pytestmark = [pytest.mark.e2e, pytest.mark.feature('A01')]\n" + RUNS,
        "class TestAll:\n    @pytest.mark.feature('A01')\n    def test_it(self):\n        see()\n",
        "CASES = [pytest.param(1, marks=pytest.mark.feature('A01'))]\n" + RUNS,
    ],
)
def test_a_test_that_runs_proves_what_it_names(text: str) -> None:
    assert features_in(text) == {"A01"}


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.skip\n" + MARK + RUNS,
        MARK + "@pytest.mark.skip(reason='later')\n" + RUNS,
        MARK + "@pytest.mark.skipif(True, reason='always')\n" + RUNS,
        MARK + "@pytest.mark.skipif(1, reason='always')\n" + RUNS,
        MARK + "@pytest.mark.xfail\n" + RUNS,
        MARK + "@pytest.mark.xfail(raises=AssertionError, strict=True)\n" + RUNS,
        "LATER = pytest.mark.skip('later')\n@LATER\n" + MARK + RUNS,
        MARK + 'def test_it():\n    """Later."""\n    pytest.skip("later")\n    see()\n',
        MARK + "def test_it():\n    look()\n    pytest.xfail('later')\n",
        MARK + 'def test_it():\n    """Later."""\n    return\n    see()\n',
        MARK + 'def test_it():\n    """Later."""\n    ...\n',
        MARK + "def test_it():\n    pass\n",
        MARK + "def look():\n    see()\n",
        "pytestmark = [pytest.mark.skip(reason='later')]\n" + MARK + RUNS,
        "pytest.skip('later', allow_module_level=True)\n" + MARK + RUNS,
        "@pytest.mark.skip\nclass TestAll:\n    @pytest.mark.feature('A01')\n"
        "    def test_it(self):\n        see()\n",
        "CASES = [pytest.param(1, marks=[pytest.mark.skip, pytest.mark.feature('A01')])]\n" + RUNS,
        "CASES = [pytest.param(1, marks=pytest.mark.feature('A01'))]\n",
    ],
)
def test_a_test_that_never_runs_proves_nothing(text: str) -> None:
    assert features_in(text) == set()


@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        ("e2e/test_a.py", "from e2e.conftest import Cluster\nfixture(Cluster)", OUTSIDE),
        ("e2e/test_a.py", "from e2e.broker_harness import running_broker", INSIDE),
        ("spark/test_a.py", "def test_a(spark: SparkSession): ...", OUTSIDE),
        ("conformance/test_java_clients.py", "subprocess.run()", None),
        ("sim/cluster/test_a.py", "", SIMULATED),
        ("scenarios/test_a.py", "", SIMULATED),
        ("unit/broker/core/test_a.py", "subprocess.run()", INSIDE),
    ],
)
def test_where_a_test_looks_from(path: str, text: str, place: str | None) -> None:
    assert place_of(ROOT / "tests" / path, text) == place
