"""Constants: values that all processes of a cluster must share, and how one is changed.

The first controller writes them. From then on a process with another value is refused, except with
the old or the new value while a change is under way. Meanwhile the longest lease counts.

    lease.ms   the time for which a leader may take itself for the only one, and for which a
               controller waits before it replaces that leader (ADR 0011)
"""

from dataclasses import dataclass
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import BrokerImage

HOW_TO_CHANGE: Final = "to change it for the whole cluster see docs/operating/run.md, lease.ms"


@dataclass(frozen=True, slots=True)
class Constants:
    """Values as stored, or as configured at one controller."""

    lease_ms: int
    lease_ms_before: int = 0
    """The value before a change that is under way; 0: none is."""

    @property
    def lease_ms_max(self) -> int:
        """The longest lease that any process may have."""
        return max(self.lease_ms, self.lease_ms_before)

    def has(self, lease_ms: int) -> bool:
        """True if a process with this value may join."""
        return lease_ms in (self.lease_ms, self.lease_ms_before)


def agreed(stored: Constants | None, own: Constants) -> Constants:
    """Return the constants to store once a controller with configuration ``own`` is active.

    A change begins at the stored value, and ends with the first controller that has the new value
    and names no older one. Raises TidemarkError INVALID_CONFIG for a controller that may not be
    active.
    """
    if stored is None or own.lease_ms == stored.lease_ms:
        return own
    if own.lease_ms_before == stored.lease_ms and stored.lease_ms_before in (0, own.lease_ms):
        return own  # the change begins, or is reverted
    if own.lease_ms == stored.lease_ms_before:
        return stored  # a controller that was not restarted yet
    raise TidemarkError(
        ErrorCode.INVALID_CONFIG,
        f"this controller has lease.ms={own.lease_ms}, the cluster has {_in_words(stored)};"
        f" set lease.ms={stored.lease_ms}; {HOW_TO_CHANGE}",
    )


def check_constants(constants: Constants, broker: BrokerImage) -> None:
    """Raise TidemarkError INVALID_CONFIG for a broker with other values. A broker of a release that
    sends none is accepted.
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
