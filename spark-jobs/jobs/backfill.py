"""The script that ``spark-submit`` starts for the job ``backfill``.

spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/backfill.py --help
"""

import sys

from tidemark_jobs.backfill.command import main

if __name__ == "__main__":
    sys.exit(main())
