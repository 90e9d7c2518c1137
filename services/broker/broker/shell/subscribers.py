"""Names of the subscribers of the metadata, in the order in which they act on a change."""

from typing import Final

HOSTING: Final = "hosting"
PARKED_REQUESTS: Final = "parked-requests"
LIVE_BROKERS: Final = "live-brokers"
THROTTLES: Final = "throttles"
SETTINGS: Final = "settings"
QUOTAS: Final = "quotas"
GROUPS: Final = "groups"
SHARES: Final = "shares"
LISTENERS: Final = "listeners"
MEMBERSHIP: Final = "membership"
ACT_FIRST: Final = (HOSTING,)
"""Subscribers that act before a new image is shown: its partitions are hosted by then."""
ACT_THEN: Final = (
    LIVE_BROKERS,
    THROTTLES,
    SETTINGS,
    QUOTAS,
    PARKED_REQUESTS,
    GROUPS,
    SHARES,
    LISTENERS,
    MEMBERSHIP,
)
