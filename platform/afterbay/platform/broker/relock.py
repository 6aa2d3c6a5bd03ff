"""Write jars.lock anew from a list of Maven coordinates (one `group:artifact:version` a line).

In:   a file with the coordinates; the jars as Maven Central serves them now
Out:  `coordinate sha256` lines on standard output
Run:  python -m afterbay.platform.broker.relock coordinates.txt > new.lock
      then read the difference to jars.lock beside this file, and replace it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from afterbay.platform.broker.jars import Jar, assemble


def main(path: Path) -> None:
    """Print the lock of the coordinates in `path`."""
    coordinates = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    jars = [Jar(coordinate, "") for coordinate in coordinates]
    for jar, file in zip(jars, assemble(jars), strict=True):
        print(jar.coordinate, hashlib.sha256(file.read_bytes()).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
