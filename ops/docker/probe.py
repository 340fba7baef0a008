#!/usr/bin/env python3
"""The health check of a container: `millstream-probe URL`, 0 when it answers 200, else 1 with what it said.

Shows the token of MILLSTREAM_METRICS__TOKEN_FILE (or MILLSTREAM_TOKEN), as the workers ask for one.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path


def main(url: str) -> int:
    """Ask once."""
    named = os.environ.get("MILLSTREAM_METRICS__TOKEN_FILE", "")
    token = Path(named).read_text(encoding="utf-8").strip() if named else os.environ.get("MILLSTREAM_TOKEN", "")
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=4):  # noqa: S310 — the caller's own URL
            return 0
    except urllib.error.HTTPError as error:
        sys.stderr.write(f"{url}: {error.code} {error.read(2000).decode(errors='replace').strip()}\n")
    except OSError as error:
        sys.stderr.write(f"{url}: {error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
