"""Ports for servers of tests.

The kernel gives outgoing connections the ports above 32,768: one that is free there when a test
asks may be taken before its server listens. Clusters take blocks from 20,000 on (``Layout``).
"""

import random
from typing import Final

from tidemark.cli.dev.layout import port_is_free

_FIRST: Final = 10_000
_END: Final = 20_000
_given: Final[set[int]] = set()


def free_port() -> int:
    """Return a port that nobody listens on, another one at each call."""
    while True:
        port = random.SystemRandom().randrange(_FIRST, _END)
        if port not in _given and port_is_free(port):
            _given.add(port)
            return port
