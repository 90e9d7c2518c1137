"""Every script under tests/scenarios gives what it says; REWRITE=1 renews what it says."""

import os
from pathlib import Path

import pytest
from scenarios.log_world import LogWorld
from scenarios.runner import parse, parse_command, play, run_script

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("log/*.txt"))


@pytest.mark.feature("B03", "B05", "K04", "K05", "K06", "K07", "K09")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    rewrite = os.environ.get("REWRITE", "") not in ("", "0")
    expected, happened = run_script(path, LogWorld().execute, rewrite=rewrite)
    assert happened == expected


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 9


def test_a_command_has_arguments_and_options() -> None:
    command = parse_command("produce p1 seq=3")
    assert (command.verb, command.arguments, command.options) == ("produce", ("p1",), {"seq": "3"})
    assert command.number("seq", 0) == 3
    assert command.number("records", 1) == 1


def test_what_happened_takes_the_place_of_what_was_expected() -> None:
    text = "# why\nsay a\n----\nold\n\nsay b\n----\n"
    happened = play(parse(text), lambda command: [command.arguments[0]])
    assert happened == "# why\nsay a\n----\na\n\nsay b\n----\nb\n"
