"""Templates, and the functions and filters that they use."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from tidemark.model.config_values import in_ms

from controller.console import figures, formats, names
from controller.console.pages.config_table import source_words
from controller.console.static_files import StaticFiles


def make_environment(static: StaticFiles) -> Environment:
    """Return the environment of all templates. Every value is escaped; an unknown one fails."""
    environment = Environment(
        loader=PackageLoader("controller.console", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=figures.number,
        size=figures.size,
        duration=figures.duration,
        instant=figures.instant,
        visible=_visible,
    )
    environment.globals.update(
        brief=formats.brief,
        in_ms=in_ms,
        whole=formats.whole,
        path=names.path,
        query=names.query,
        command=names.command,
        percent=figures.percent,
        plural=figures.plural,
        static=static.url,
        source_words=source_words,
        UNKNOWN=figures.UNKNOWN,
    )
    return environment


def _visible(value: Any) -> str:
    return names.visible(str(value))
