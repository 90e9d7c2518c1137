"""``python -m tidemark_jobs.offload``."""

import sys

from tidemark_jobs.offload.command import main

if __name__ == "__main__":
    sys.exit(main())
