"""Put on PYTHONPATH: in every Python process below, whatever reaches for the network is written down
(in the file $REFUSED) and refused. Audit hooks see the C level, too, and cannot be taken off.
"""

import ipaddress
import os
import sys
from pathlib import Path

WATCHED = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0}


def _local(host):
    if host is None or host in ("", "localhost", b"localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _hook(event, arguments):
    place = WATCHED.get(event)
    if place is None:
        return
    target = arguments[place]
    if place:
        if not isinstance(target, tuple) or len(target) < 2:  # a path: a local socket
            return
        target = target[0]
    if not _local(target):
        with Path(os.environ["REFUSED"]).open("a", encoding="utf-8") as file:
            file.write(f"{event} {arguments[place]!r} by {sys.argv}\n")
        raise PermissionError(f"refused: {event} {target!r}")


sys.addaudithook(_hook)
