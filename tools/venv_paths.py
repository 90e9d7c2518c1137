"""Where this environment's Python looks for modules: one file in its site-packages, for ``setup``.

It adds the generated gRPC code, and takes the zip of PySpark's sources out. spark-submit puts that
zip in front of everything, and Python keeps nothing of what it compiles out of one: 1 CPU s for
each of the eight interpreters that a streaming query starts, where the package that pip installed,
the very same sources, takes 0.2.
"""

import site
from pathlib import Path
from typing import Final

GENERATED: Final = Path(__file__).parents[1] / "gen"
_WITHOUT_ZIP: Final = (
    "import sys; sys.path[:] = [one for one in sys.path if not one.endswith('/pyspark.zip')]"
)


def write(directory: Path) -> Path:
    """Write it into a directory of site-packages."""
    path = directory / "tidemark_paths.pth"
    path.write_text(f"{GENERATED}\n{_WITHOUT_ZIP}\n")
    return path


if __name__ == "__main__":
    write(Path(site.getsitepackages()[0]))
