"""Names of the subscribers of the metadata, in the order in which they act on a change."""

from typing import Final

AUTHORIZER: Final = "authorizer"
HOSTING: Final = "hosting"
PARKED_REQUESTS: Final = "parked-requests"
LIVE_BROKERS: Final = "live-brokers"
THROTTLES: Final = "throttles"
SETTINGS: Final = "settings"
QUOTAS: Final = "quotas"
GROUPS: Final = "groups"
SHARES: Final = "shares"
CLIENT_METRICS: Final = "client-metrics"
LISTENERS: Final = "listeners"
MEMBERSHIP: Final = "membership"
ACT_FIRST: Final = (AUTHORIZER, HOSTING)
"""Subscribers that act before a new image is shown: by then its ACLs are enforced, and its
partitions are hosted.
"""
ACT_THEN: Final = (
    LIVE_BROKERS,
    THROTTLES,
    SETTINGS,
    QUOTAS,
    PARKED_REQUESTS,
    GROUPS,
    SHARES,
    CLIENT_METRICS,
    LISTENERS,
    MEMBERSHIP,
)
