"""The script that ``spark-submit`` starts for the job ``reshard``.

spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/reshard.py --help
"""

import sys

from tidemark_jobs.reshard.command import main

if __name__ == "__main__":
    sys.exit(main())
