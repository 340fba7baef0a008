"""The envelope of every event on ``policy-events``."""

from __future__ import annotations

from msgspec import Struct


class PolicyEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The envelope of ``policy-events``."""

    id: str
    lineage: str
    log_ms: int = 0
