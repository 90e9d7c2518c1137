"""The script that ``spark-submit`` starts for the job ``offload``.

spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/offload.py --help
"""

import sys

from tidemark_jobs.offload.command import main

if __name__ == "__main__":
    sys.exit(main())
