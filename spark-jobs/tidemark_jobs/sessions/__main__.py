"""``python -m tidemark_jobs.sessions``."""

import sys

from tidemark_jobs.sessions.command import main

if __name__ == "__main__":
    sys.exit(main())
