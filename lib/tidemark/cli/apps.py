"""Groups of commands: their settings, and a root that imports a group when it is used."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer import main as typer_main
from typer._click import Command, Context, HelpFormatter
from typer._click.shell_completion import CompletionItem
from typer.core import TyperGroup

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def command_group(purpose: str) -> typer.Typer:
    """Return an empty group of commands.

    Help is plain text: the libraries for boxes and colours take longer to import than all else.
    """
    return typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help=purpose, context_settings=HELP_OPTIONS
    )


class GroupPlace(NamedTuple):
    """Module whose ``app`` is a group of commands, and the group's help, known without it."""

    module: str
    purpose: str


class _LazyCommands(MutableMapping[str, Command]):
    """Groups by name, each imported at its first use."""

    def __init__(self, places: Mapping[str, GroupPlace]) -> None:
        self._places = places
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            app: typer.Typer = import_module(self._places[name].module).app
            app.info.name = name
            command = typer_main.get_group(app)
            command.name = name
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._places

    def __len__(self) -> int:
        return len(self._places)


class ClosedOutputError(Exception):
    """The reader of the output has closed it."""


class LazyGroups(TyperGroup):
    """Root command, with the names and the help of its groups before they are imported."""

    places: ClassVar[Mapping[str, GroupPlace]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _LazyCommands(self.places)

    def invoke(self, ctx: Context) -> Any:
        """Run the command. Raises ClosedOutputError, which typer would turn into a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ClosedOutputError from None

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the list of groups."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.purpose) for name, place in self.places.items()])

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Return the groups, or the root's options, that begin with ``incomplete``."""
        options = (
            []
            if incomplete[:1].isalnum()
            else super(TyperGroup, self).shell_complete(ctx, incomplete)
        )
        return options + [
            CompletionItem(name, help=place.purpose)
            for name, place in self.places.items()
            if name.startswith(incomplete)
        ]
