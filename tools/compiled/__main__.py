"""The compiled build of the same source.

python -m compiled               make it unless it exists, and print where it is
python -m compiled COMMAND...    run a command with it: its path is put first on PYTHONPATH
"""

import os
import sys
from collections.abc import Sequence

from compiled.build import BuildError, tree


def main(argv: Sequence[str]) -> int:
    """Make the compiled tree, and use it."""
    try:
        built = tree()
    except BuildError as error:
        print(f"compiled: {error}", file=sys.stderr)
        return 1
    if not argv:
        print(built)
        return 0
    path = [str(built), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.execvpe(argv[0], list(argv), {**os.environ, "PYTHONPATH": os.pathsep.join(path)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
