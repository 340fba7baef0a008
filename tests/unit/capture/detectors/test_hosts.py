"""Addresses of machines, and versions that look like them."""

from __future__ import annotations

import pytest

from millstream.capture.detectors.hosts import ips


def found(text):
    return [text[one.start : one.end] for one in ips(text)]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Trying 172.18.0.2\n", "172.18.0.2"),
        ("192.168.221.128   59", "192.168.221.128"),
        ("http://10.0.0.5:8080/x", "10.0.0.5"),
        ("from 8.8.8.8.", "8.8.8.8"),
        ("10.0.0.0/8", "10.0.0.0"),
        ("'x-client-ip': '152.3.34.5'", "152.3.34.5"),
        ("at 2001:db8:85a3::8a2e:370:7334, port", "2001:db8:85a3::8a2e:370:7334"),
        ("fe80::1ff:fe23:4567:890a", "fe80::1ff:fe23:4567:890a"),
    ],
)
def test_addresses(text, address):
    """Of either version, also with a port or a mask."""
    assert found(text) == [address]


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "nvidia-cublas-cu12  12.4.5.8", "EC 3.1.3.1; 1.11.1.7"),
        *(
            "Chrome/120.0.0.0",
            "version 10.3.5.147",
            "Table 5.1.3.1-1",
            "1776481281.6342883-1.0.1.1-wYy",
            "1.2.3",
            "1.2.3.4.5",
        ),
        *("1.234.567.890", "at 12:34:56", "std::vector", "a::b", "dead:beef", "300.1.2.3", "0.5.1.2.tar"),
    ],
)
def test_what_is_no_address(text):
    """The own machine, versions, sections, thousands, times and names of programs."""
    assert found(text) == []
