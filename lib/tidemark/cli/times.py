"""Times in arguments. Pure."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tidemark.codec.varint import INT64_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_ms(text: str) -> int:
    """Return ms since 1970 for an ISO 8601 time (by default UTC) or @ms.

    Raises ValueError, also for times before 1970: the logs have no records of then, and negative
    numbers name the ends of a log when offsets are looked up.
    """
    if re.fullmatch(r"@\d+", text):
        found = int(text[1:])
    else:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = (moment - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= found <= INT64_MAX:
        raise ValueError(f"{text} is not a time from 1970 on")
    return found
