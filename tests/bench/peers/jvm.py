"""JVMs of the comparison, with the options that Kafka's own scripts give them."""

from collections.abc import Sequence
from typing import Final

_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_SERVER_HEAP: Final = ("-Xmx1G", "-Xms1G")
_TOOL_HEAP: Final = ("-Xmx512M",)


def server_argv(class_path: str, main: str, *arguments: str) -> Sequence[str]:
    """Command of kafka-server-start.sh."""
    return ["java", *_SERVER_HEAP, *_OPTIONS, "-cp", class_path, main, *arguments]


def tool_argv(class_path: str, main: str, *arguments: str) -> Sequence[str]:
    """Command of kafka-producer-perf-test.sh and its like."""
    return ["java", *_TOOL_HEAP, *_OPTIONS, "-cp", class_path, main, *arguments]
