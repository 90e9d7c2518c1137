"""Kafka's names of broker settings that give a time in minutes or hours: log.retention.hours.

The finest name that is set counts. The default stands under the coarsest one, as in Kafka.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import BaseModel, Field

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


class CoarseTime(NamedTuple):
    """One name, and the milliseconds of its unit."""

    name: str
    unit_ms: int

    @property
    def field_name(self) -> str:
        """Name of the option's field."""
        return self.name.replace(".", "_")

    def in_ms(self, value: int) -> str:
        """Return a value in milliseconds; a negative one, without a bound, is -1."""
        return str(max(-1, value * self.unit_ms))


COARSE_TIMES: Final[Mapping[str, tuple[CoarseTime, ...]]] = {
    "log.retention.ms": (
        CoarseTime("log.retention.minutes", _MINUTE_MS),
        CoarseTime("log.retention.hours", _HOUR_MS),
    ),
    "log.roll.ms": (CoarseTime("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (CoarseTime("log.roll.jitter.hours", _HOUR_MS),),
}
"""Other names of a setting in milliseconds, the finest first."""


class CoarseTimesConfig(BaseModel):
    """Options of a broker. A topic's own setting, and the name in milliseconds, are stronger."""

    log_retention_minutes: int | None = Field(
        None, ge=-1, le=2**31 - 1, description="log.retention.ms in minutes, where that is not set"
    )
    log_retention_hours: int = Field(
        168,
        ge=-1,
        le=2**31 - 1,
        description="log.retention.ms in hours, where it is set neither in ms nor in minutes",
    )
    log_roll_hours: int = Field(
        168, ge=1, le=2**31 - 1, description="log.roll.ms in hours, where that is not set"
    )
    log_roll_jitter_hours: int = Field(
        0, ge=0, le=2**31 - 1, description="log.roll.jitter.ms in hours, where that is not set"
    )

    def coarse_setting(self, ms_name: str) -> tuple[CoarseTime, int] | None:
        """Return the finest coarse name that is set for a setting in ms, with its value."""
        for name in COARSE_TIMES.get(ms_name, ()):
            value = getattr(self, name.field_name)
            if name.field_name in self.model_fields_set and value is not None:
                return name, value
        return None
