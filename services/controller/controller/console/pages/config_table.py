"""The table of a configuration: value, source, and the difference to the default."""

from typing import Final

from controller.admin.configs import ConfigView
from controller.console.tables import Column, Table


def source_words(source: str) -> str:
    """Return where a value comes from, in words."""
    return _SOURCES.get(source, source.lower().replace("_", " "))


_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "broker's file",
    "DEFAULT_CONFIG": "default",
    "GROUP_CONFIG": "this group",
}

CONFIGS: Final[Table[ConfigView]] = Table(
    columns=(
        Column("name", "Setting", lambda row: row.name),
        Column("value", "Value", lambda row: row.value or ""),
        Column("source", "Set by", lambda row: (row.is_default, row.source)),
        Column("default", "Default"),
        Column("change", ""),
    ),
    text_of=lambda row: f"{row.name} {row.value} {source_words(row.source)}",
    sort="source",
    noun="setting",
    label="Configuration",
)
