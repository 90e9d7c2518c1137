"""``python -m tidemark_jobs.reshard``."""

import sys

from tidemark_jobs.reshard.command import main

if __name__ == "__main__":
    sys.exit(main())
