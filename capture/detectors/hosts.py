"""Addresses of machines: IPv4 and IPv6. Four small numbers are a version, unless what is around them says host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from millstream.capture.detectors.base import Found, before

_V4 = re.compile(r"\d(?<![\w.-].)\d{0,2}(?:\.\d{1,3}){3}(?![\w-])(?!\.\w)", re.ASCII)
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:", re.ASCII)
_V6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{3,4}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?![\w:])", re.ASCII)
_VERSION = re.compile(r"(?i)(?:version|release|build|v\.?|section|chapter|table|§|[A-Za-z]/)\s{0,2}$", re.ASCII)
_HOST = re.compile(
    r"(?i)(?:\b(?:ip|ipv4|host|address|addr|from|to|at|server|client|peer|ping|ssh|trying|remote|inet|connected)\b\W{0,4}"
    r"|://|@)$",
    re.ASCII,
)
_PORT = re.compile(r":\d{2,5}\b|/\d{1,2}\b", re.ASCII)


def ips(text: str) -> Iterator[Found]:
    """Addresses that lead to one machine: not loopback, not 0.0.0.0; no version numbers."""
    if "." in text:
        for found in _V4.finditer(text):
            if _leads(found.group()) and _is_v4(text, found):
                yield Found(*found.span(), "ip")
    if _COLONS.search(text):
        for found in _V6.finditer(text):
            if _leads(found.group()):
                yield Found(*found.span(), "ip")


def _is_v4(text: str, found: re.Match[str]) -> bool:
    ahead = before(text, found.start(), 24)
    if _VERSION.search(ahead):
        return False
    large = any(int(part) > 99 for part in found.group().split("."))
    return large or _HOST.search(ahead) is not None or _PORT.match(text, found.end()) is not None


def _leads(address: str) -> bool:
    try:
        told = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (told.is_loopback or told.is_unspecified or told.is_multicast or address == "255.255.255.255")
