"""``python -m tidemark_jobs.backfill``."""

import sys

from tidemark_jobs.backfill.command import main

if __name__ == "__main__":
    sys.exit(main())
