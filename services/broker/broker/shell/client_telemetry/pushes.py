"""Content of a push."""

from typing import Final, NamedTuple

from broker.core.client_metrics.series import Point

TEXT_CHARS_MAX: Final = 200
CLIENT_LABELS: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
)
"""Labels that the broker sets, and no client."""


class MalformedPushError(ValueError):
    """The payload is not OpenTelemetry's MetricsData."""


class DecodedPush(NamedTuple):
    """Content of a push. ``dropped`` counts points beyond the bound, and those of histograms."""

    points: tuple[Point, ...]
    dropped: int
