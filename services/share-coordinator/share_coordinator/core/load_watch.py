"""Decision whether measured lags justify a new target for a share group.

A target by load changes with every measurement. A member that is moved loses the
records that it has fetched ahead, so that small differences are left alone.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tidemark.model.assignment import pairs

from share_coordinator.core.assignors import AssignorMember, Demand, wanted_by_load

MISPLACED_MIN: Final = 2
"""Places that have to be elsewhere, at least, for a new target."""
MISPLACED_PART: Final = 10
"""And at least one in so many of all places."""


def is_skewed(members: Sequence[AssignorMember], demand: Demand) -> bool:
    """True if enough places of the present target are away from the lag."""
    wanted = wanted_by_load(members, demand)
    present = Counter(at for member in members for at in pairs(member.target))
    misplaced = sum(max(0, count - present[at]) for at, count in wanted.items())
    return misplaced >= max(MISPLACED_MIN, sum(wanted.values()) / MISPLACED_PART)
