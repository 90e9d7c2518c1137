"""Documents and the code: examples that can be pasted, defaults, rooms, tables."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml  # type: ignore[import-untyped]
from broker.config import BrokerConfig
from controller.config import ControllerConfig
from share_coordinator.config import ShareCoordinatorConfig
from tidemark.cli.main import app
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service_config import (
    ConfigError,
    ServiceConfig,
    config_keys,
    help_text,
    load,
)
from tidy.proofs import ROOT
from txn_coordinator.config import TxnCoordinatorConfig

DOCS: Final = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "helm/tidemark/README.md",
]
of_each_document = pytest.mark.parametrize(
    "doc", DOCS, ids=lambda path: str(path.relative_to(ROOT))
)


def plain_lines(text: str) -> list[str]:
    """Lines, empty where they belong to a fenced block."""
    found, in_code = [], False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        found.append("" if in_code or is_fence else line)
        in_code ^= is_fence
    return found


# Links and tables


def anchors(text: str) -> set[str]:
    """Names by which links reach the headings of a document."""
    heads = re.findall(r"^#+ (.*)$", "\n".join(plain_lines(text)), re.MULTILINE)
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w -]", "", word).replace(" ", "-") for word in words}


@of_each_document
def test_every_anchor_of_a_link_is_a_heading(doc: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", doc.read_text())
    lost = []
    for path, anchor in links:
        page = doc.parent / path if path else doc
        if page.suffix == ".md" and anchor not in anchors(page.read_text()):
            lost.append(f"{path}#{anchor}")
    assert lost == []


@of_each_document
def test_every_table_has_a_head_and_rows_of_one_length(doc: Path) -> None:
    lines = plain_lines(doc.read_text())
    columns, wrong = 0, []
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            columns = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        under = lines[number + 1] if number + 1 < len(lines) else ""
        is_head = re.fullmatch(r"\|[-| :]+\|", under) is not None
        if (not columns and not is_head) or (columns and cells != columns):
            wrong.append(number + 1)
        columns = cells
    assert wrong == []


# Commands


def shell_lines(text: str) -> Iterator[str]:
    """Lines of fenced and of indented blocks; a line that goes on is one with the next."""
    joined = text.replace("\\\n", " ")
    for block in re.findall(r"```(?:sh)?\n(.*?)```", joined, re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"^ {4}(\S.*)$", "\n".join(plain_lines(joined)), re.MULTILINE)


COMMAND: Final = re.compile(r"(?:^|-- |^\.venv/bin/)tidemark (.+)")
PLACEHOLDER: Final = re.compile(r"\.\.\.")
AFTER_COMMAND: Final = frozenset((">", "<", "|", "&&"))


def written_commands(text: str) -> Iterator[list[str]]:
    """Arguments of each `tidemark` that an example calls."""
    for line in shell_lines(text):
        found = COMMAND.search(line.strip())
        if found is None or PLACEHOLDER.search(line):
            continue
        words = shlex.split(found[1], comments=True)
        ends = [at for at, word in enumerate(words) if word in AFTER_COMMAND]
        yield words[: ends[0]] if ends else words


@cache
def command_line() -> Any:
    """As a tree: a group has ``commands``."""
    return typer.main.get_command(app)


def parse(arguments: list[str]) -> None:
    """Read them as the command line does, and run nothing. Raises a usage error of typer."""
    words, node = list(arguments), command_line()
    for option in ("-X", "--profile"):  # before the command, or behind it
        while option in words:
            at = words.index(option)
            del words[at : at + 2]
    while hasattr(node, "commands"):
        assert words, f"no command: {arguments}"
        assert words[0] in node.commands, f"no such command: {arguments}"
        node = node.commands[words.pop(0)]
    node.make_context(node.name, words)


@of_each_document
def test_every_example_of_a_command_is_one_that_the_command_line_takes(doc: Path) -> None:
    for arguments in written_commands(doc.read_text()):
        parse(arguments)


def test_options_and_missing_arguments_of_an_example_are_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["topic", "create", "orders", "--replicas", "3"])
    with pytest.raises(Exception, match=r"[Mm]issing"):
        parse(["topic", "create"])


def test_nobody_is_told_to_install_from_an_index_what_is_not_on_it() -> None:
    # Nothing is released yet: pip would install whatever has the name.
    sources = [path for name in ("lib", "services") for path in (ROOT / name).rglob("*.py")]
    asked = re.compile(r"pip install ['\"]?tidemark")
    assert [path.name for path in (*DOCS, *sources) if asked.search(path.read_text())] == []


@of_each_document
def test_every_make_of_an_example_is_a_target_with_its_variables(doc: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    variables = {"ARGS", *re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE)}
    text = doc.read_text()
    lines = [*shell_lines(text), *re.findall(r"`(make [a-z][^`]*)`", text)]
    for line in lines:
        found = re.match(r"\s*make ([a-z0-9-]+)(.*)", line, re.DOTALL)
        if found is not None:
            assert found[1] in targets
            assert set(re.findall(r" ([A-Z]+)=", found[2])) <= variables


# Configuration

SERVICES: Final[dict[type[ServiceConfig], str]] = {
    BrokerConfig: "broker.id: 1\nlog.dirs: logs\n",
    ControllerConfig: "controller.id: 1\n",
    TxnCoordinatorConfig: "coordinator.id: 1\n",
    ShareCoordinatorConfig: "coordinator.id: 1\n",
}
"""Each with the keys that it does not start without."""


def yaml_examples() -> Iterator[tuple[str, str]]:
    """Page and text of each example of a service's file."""
    for doc in DOCS:
        for block in re.findall(r"```yaml\n(.*?)```", doc.read_text(), re.DOTALL):
            if any("." in key for key in yaml.safe_load(block)):
                yield doc.name, block


@pytest.mark.parametrize(("page", "block"), list(yaml_examples()))
def test_every_example_of_a_file_is_one_that_a_service_takes(
    page: str, block: str, tmp_path: Path
) -> None:
    given = yaml.safe_load(block)
    problems = []
    for config, needed in SERVICES.items():
        own = [line for line in needed.splitlines() if line.partition(":")[0] not in given]
        path = tmp_path / f"{config.__name__}.yaml"
        path.write_text("\n".join((*own, block)))
        try:
            load(config, ["--config", str(path)], env_prefix="OF_NO_PROGRAM_", environ={})
        except ConfigError as error:
            problems.append(f"{config.__name__}: {error}")
    assert len(problems) < len(SERVICES), f"{page}: {problems}"


@cache
def defaults() -> dict[str, set[str]]:
    """Defaults of each key: services and topics may have different ones."""
    found: dict[str, set[str]] = {}
    for config in SERVICES:
        for key in config_keys(config):
            found.setdefault(key.name, set()).add(key.default)
    for topic_key in TOPIC_CONFIG_KEYS.values():
        found.setdefault(topic_key.name, set()).add(topic_key.default)
    return found


UNITS: Final = {
    "s": 1_000,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "KB": 2**10,
    "KiB": 2**10,
    "MB": 2**20,
    "MiB": 2**20,
    "GB": 2**30,
}
KEYS_OWN_UNIT: Final = {".minutes": 60_000, ".hours": 3_600_000, ".seconds": 1_000}
KEY: Final = r"`([a-z]+(?:\.[a-z0-9]+)+)`"
AMOUNT: Final = r"(an?|\d[\d,]*) ?([a-zA-Z]+)?(?:/s)?"
STATED: Final = re.compile(rf"{KEY}[,;]? \({AMOUNT}[;,)]")
ROW: Final = re.compile(rf"^\| {KEY} \| {AMOUNT} \|", re.MULTILINE)


def number_of(key: str, amount: str, unit: str) -> int | None:
    """What a document states, in the key's own unit; None where the words are no amount."""
    if unit and unit.removesuffix("s") not in UNITS and unit not in UNITS:
        return None
    count = 1 if amount.startswith("a") else int(amount.replace(",", ""))
    scale = UNITS.get(unit) or UNITS.get(unit.removesuffix("s"), 1) if unit else 1
    own = next((size for end, size in KEYS_OWN_UNIT.items() if key.endswith(end)), 1)
    return count * scale // (own if unit else 1)


def stated_defaults(text: str) -> Iterator[tuple[str, int]]:
    """Keys with the default that stands behind them in brackets, or in the next cell."""
    for key, amount, unit in [*STATED.findall(" ".join(text.split())), *ROW.findall(text)]:
        number = number_of(key, amount, unit)
        if key in defaults() and number is not None:
            yield key, number


def as_stated(default: str) -> int | None:
    """A default as documents state it: the 12 bytes of a batch's head in Kafka's 1 MB left out."""
    if re.fullmatch(r"\d+(\.0)?", default) is None:
        return None
    number = int(float(default))
    return number - 12 if number == 2**20 + 12 else number


@of_each_document
def test_a_default_that_a_document_states_is_that_of_the_code(doc: Path) -> None:
    if doc.name in ("CHANGELOG.md", "acceptance.md") or doc.parent.name == "spark":
        return  # what was once, what was asked, and options of another program
    wrong = [
        (key, number, defaults()[key])
        for key, number in stated_defaults(doc.read_text())
        if number not in {as_stated(each) for each in defaults()[key]}
    ]
    assert wrong == []


def test_stated_defaults_are_found_and_read_in_the_unit_of_their_key() -> None:
    found = {one for doc in DOCS for one in stated_defaults(doc.read_text())}
    assert len(found) > 30
    text = "`retention.ms` (7 days; -1: never), `offsets.retention.minutes` (7 days)"
    assert list(stated_defaults(text)) == [
        ("retention.ms", 604_800_000),
        ("offsets.retention.minutes", 10_080),
    ]


# Exit codes


def codes_in(text: str) -> list[int]:
    """First numbers of the rows of run.md's table, or of the list of a help."""
    return [int(code) for code in re.findall(r"^(?:\| | +)(\d+)(?: \| |  \w)", text, re.MULTILINE)]


def test_the_page_and_the_help_have_the_exit_codes_of_services_and_no_others() -> None:
    used = {
        ExitCode[name]
        for folder in ("services", "lib/tidemark/runtime")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "exit_codes.py"
        for name in re.findall(r"\bExitCode\.([A-Z_]+)", path.read_text())
    }
    page = (ROOT / "docs/operating/run.md").read_text().split("\n## Exit codes\n")[1]
    shown = help_text(BrokerConfig, service="broker", env_prefix="OF_NO_PROGRAM_")
    assert codes_in(page) == sorted(used)
    assert codes_in(shown.split("\nexit codes:\n")[1]) == sorted(used)


# Rooms


def packages(folder: str) -> list[str]:
    """Names of the packages in it."""
    return sorted(path.parent.name for path in (ROOT / folder).glob("*/__init__.py"))


SERVICE_FOLDERS: Final = [
    str(path.parent.relative_to(ROOT)) for path in (ROOT / "services").glob("*/*/__init__.py")
]


@pytest.mark.parametrize("folder", SERVICE_FOLDERS)
def test_the_architecture_names_every_package_of_a_service(folder: str) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    (row,) = re.findall(rf"^\| `{folder}` \| (.*) \|$", page, re.MULTILINE)
    linked = "".join((ROOT / path).read_text() for path in re.findall(r"\]\((docs/\w+\.md)\)", row))
    assert [name for name in packages(folder) if f"`{name}`" not in row + linked] == []


def test_the_architecture_names_every_package_of_the_library() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    assert [name for name in packages("lib/tidemark") if f"`lib/tidemark/{name}`" not in page] == []


def test_the_page_of_the_broker_names_every_room_of_its_shell() -> None:
    page = (ROOT / "docs/broker.md").read_text()
    rooms = packages("services/broker/broker/shell")
    assert [name for name in rooms if f"\n| `{name}` |" not in page] == []
