"""Write the golden outcomes of the built-in graders anew, after raising a grader's VERSION.

The cases of a file stay as they are; ``version`` and the grade of each case are replaced. Run from the
repository: ``python tests/golden/graders/write.py [NAME…]``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import msgspec

from millstream.adapters.sandbox import NoSandbox
from millstream.graders.builtin import BUILTINS, builtin
from millstream.settings import SandboxSettings

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent.parent / "unit" / "graders"


def module(name: str):
    """A test module, by its path."""
    spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def main() -> int:
    """Write the files of the graders named, or of all."""
    sandbox = NoSandbox(SandboxSettings())
    make, case = module("conftest").make_run, module("test_epochs").make_case
    for name in sys.argv[1:] or sorted(BUILTINS):
        path = HERE / f"{name}.json"
        golden = json.loads(path.read_text(encoding="utf-8"))
        golden["version"] = BUILTINS[name].version
        for one in golden["cases"]:
            one["grade"] = msgspec.to_builtins(builtin(name, one.get("options"), None, sandbox)(case(one, make)))
        lines = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in golden["cases"])
        path.write_text(
            f'{{"grader": "{name}", "version": {golden["version"]}, "cases": [\n{lines}\n]}}\n', encoding="utf-8"
        )
    sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
