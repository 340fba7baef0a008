"""Wiring: the only place that picks adapters.

Heavy libraries are imported where they are first needed, after the opt-outs of their telemetry are set.
"""

from __future__ import annotations

from millstream.bootstrap.runtime import Runtime, client, diagnose, grader_named
from millstream.optouts import opt_out

opt_out()

__all__ = ["Runtime", "client", "diagnose", "grader_named"]
