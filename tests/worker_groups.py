"""Which tests of a run on several workers belong together, with ``--dist loadfile``.

A fixture of the whole session that costs something (a cluster, a JVM, a build) would start in each
worker that gets one of its tests, and run there until the session ends. So the modules that share
one are one group, which one worker runs module by module; any other module is a group of its own.
Groups begin before single modules, and modules marked ``long`` before others: what begins last
runs while the other workers have nothing left. Within that the order is pytest-randomly's.

Such a fixture ends with its last test, in every run.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_PATH: Final = "groups_path"
"""Name, among a worker's inputs, of the file with the groups: only workers collect tests."""


class Groups:
    """Hooks of a process that hands tests to workers."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(prefix="tidemark-groups-")
        self._path = Path(self._directory.name, "groups.json")

    def end(self) -> None:
        """Remove the file."""
        self._directory.cleanup()

    def pytest_configure_node(self, node: WorkerController) -> None:
        """Tell a worker where to write."""
        node.workerinput[_PATH] = str(self._path)

    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> LoadFileScheduling:
        """Files of a group are as one file."""
        return _Scheduling(self._path, config, log)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    def __init__(self, path: Path, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._path = path
        self._groups: Mapping[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:  # all workers have collected
            self._groups = json.loads(self._path.read_text(encoding="utf-8"))
        module = nodeid.partition("::")[0]
        return self._groups.get(module, module)


class Order:
    """Hooks of a worker: puts what takes long first, and says which modules belong together."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort; what is equal keeps the order that pytest-randomly gave it."""
        groups = groups_of(items)
        sizes = Counter(groups.values())

        def rank(item: pytest.Item) -> tuple[int, str, bool]:
            group = groups.get(module_of(item), "")
            return -sizes[group], group, item.get_closest_marker("long") is None

        items.sort(key=rank)
        text = json.dumps(groups, sort_keys=True)
        if not self._path.exists():  # the other workers write the same
            self._path.write_text(text, encoding="utf-8")


class Ending:
    """Ends a shared fixture with its last test."""

    def __init__(self) -> None:
        self._left: Counter[pytest.FixtureDef[Any]] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count each fixture's tests."""
        self._left.update(fixture for item in session.items for fixture in shared_fixtures(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """After the test's own fixtures, and its module's, have ended."""
        try:
            yield
        finally:
            for fixture in shared_fixtures(item):
                self._left[fixture] -= 1
                if not self._left[fixture]:
                    fixture.finish(item._request)  # type: ignore[attr-defined]


def shared_fixtures(item: pytest.Item) -> list[pytest.FixtureDef[Any]]:
    """The fixtures of the whole session that a test asks for; those that every test has, and
    pytest's own, are none of them.
    """
    found = getattr(item, "_fixtureinfo", None)
    if found is None:
        return []
    given: Mapping[str, Any] = found.name2fixturedefs
    always = set(item.session._fixturemanager._getautousenames(item))
    return [
        definitions[-1]
        for name, definitions in given.items()
        if definitions[-1].scope == "session" and definitions[-1].baseid and name not in always
    ]


def groups_of(items: Iterable[pytest.Item]) -> dict[str, str]:
    """The group of each module that shares a fixture: the names of the fixtures of the group."""
    users: dict[str, set[str]] = defaultdict(set)
    for item in items:
        for fixture in shared_fixtures(item):
            users[f"{fixture.baseid}/{fixture.argname}"].add(module_of(item))
    return {
        module: ",".join(sorted(together))
        for together in joined(users)
        for name in together
        for module in users[name]
    }


def joined(users: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Sets of names: two names that have a user in common are in one set."""
    sets: list[tuple[set[str], set[str]]] = []
    for name, its in users.items():
        names, modules = {name}, set(its)
        for other in [other for other in sets if not other[1].isdisjoint(modules)]:
            sets.remove(other)
            names |= other[0]
            modules |= other[1]
        sets.append((names, modules))
    return [names for names, _ in sets]


def module_of(item: pytest.Item) -> str:
    """A test's file."""
    return item.nodeid.partition("::")[0]


def begin(config: pytest.Config) -> None:
    """Divide the tests, if this process belongs to a run by files; end fixtures in any run."""
    plugins = config.pluginmanager
    plugins.register(Ending(), "ending")
    path = getattr(config, "workerinput", {}).get(_PATH)
    if path is not None:
        plugins.register(Order(Path(path)), "order")
    elif config.getoption("dist", "no") == "loadfile" and not hasattr(config, "workerinput"):
        groups = Groups()
        plugins.register(groups, "groups")
        config.add_cleanup(groups.end)
