"""Write the golden readings of the dialects anew, after raising `MAPPING_EPOCH`.

The lines of a file stay as they are; ``mapping_epoch`` and the events of each line are replaced. Run from the
repository: ``python tests/golden/dialects/write.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from millstream.dialects.reading import MAPPING_EPOCH, mapped

HERE = Path(__file__).resolve().parent


def told(case: dict[str, Any]) -> Any:
    """What the mapping of now reads in a line of a dialect, as plain JSON."""
    found = mapped(json.dumps(case["line"]).encode(), {"dialect": case["dialect"]})
    return json.loads(msgspec.json.encode([found.trajectory_id, found.span_id, found.place, found.events]))


def main() -> int:
    """Write every file."""
    for path in sorted(HERE.glob("*.json")):
        cases = [case | {"told": told(case)} for case in json.loads(path.read_text(encoding="utf-8"))["cases"]]
        lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
        path.write_text(f'{{"mapping_epoch": {MAPPING_EPOCH}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
