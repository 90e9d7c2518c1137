"""Constants: what every process of a cluster must have the same, and how a value becomes another.

The first controller writes them. From then on a process with another value is refused, unless that
is the value from which, or to which, a change is under way. While one is, the longest lease counts.

    lease.ms   a controller waits as long before it replaces a leader as that one may take itself
               for the only one (ADR 0011)
"""

from dataclasses import dataclass
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import BrokerImage

HOW_TO_CHANGE: Final = "to change it for the whole cluster see docs/operating/run.md, lease.ms"


@dataclass(frozen=True, slots=True)
class Constants:
    """As stored, or as one controller is configured."""

    lease_ms: int
    lease_ms_before: int = 0
    """What it is being changed from; 0: no change is under way."""

    @property
    def lease_ms_max(self) -> int:
        """The longest that any process may have."""
        return max(self.lease_ms, self.lease_ms_before)

    def has(self, lease_ms: int) -> bool:
        """Whether a process with this value may take part."""
        return lease_ms in (self.lease_ms, self.lease_ms_before)


def agreed(stored: Constants | None, own: Constants) -> Constants:
    """What is to be stored once a controller configured like ``own`` is active.

    A change begins from the value that is stored, and ends with the first controller that has the
    new value and names no older one. Raises TidemarkError INVALID_CONFIG for a controller that may
    not be active.
    """
    if stored is None or own.lease_ms == stored.lease_ms:
        return own
    if own.lease_ms_before == stored.lease_ms and stored.lease_ms_before in (0, own.lease_ms):
        return own  # it begins, or is taken back
    if own.lease_ms == stored.lease_ms_before:
        return stored  # not restarted yet
    raise TidemarkError(
        ErrorCode.INVALID_CONFIG,
        f"this controller has lease.ms={own.lease_ms}, the cluster has {_in_words(stored)};"
        f" set lease.ms={stored.lease_ms}; {HOW_TO_CHANGE}",
    )


def check_constants(constants: Constants, broker: BrokerImage) -> None:
    """Raises TidemarkError INVALID_CONFIG for a broker that disagrees. One of a release that does
    not send its own is let in.
    """
    if broker.lease_ms and not constants.has(broker.lease_ms):
        raise TidemarkError(
            ErrorCode.INVALID_CONFIG,
            f"broker {broker.broker_id} has lease.ms={broker.lease_ms}, the cluster has"
            f" {_in_words(constants)}; set lease.ms={constants.lease_ms}; {HOW_TO_CHANGE}",
        )


def _in_words(constants: Constants) -> str:
    now = f"lease.ms={constants.lease_ms}"
    before = constants.lease_ms_before
    return f"{now} (changed from {before}, which may still join)" if before else now
