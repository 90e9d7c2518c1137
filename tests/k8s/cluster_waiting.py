"""Waits whose looks start kubectl, which takes a tenth of a second of a core."""

from functools import partial
from typing import Final

import waiting

wait_for: Final = partial(waiting.wait_for, poll_s=0.5)
