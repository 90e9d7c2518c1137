"""The script that ``spark-submit`` starts for the job ``sessions``.

spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/sessions.py --help
"""

import sys

from tidemark_jobs.sessions.command import main

if __name__ == "__main__":
    sys.exit(main())
