"""The stores that the suite of the store port runs on: the file of the log, and stores beside a log."""

from __future__ import annotations

import uuid

from millstream.adapters.redis_store import RedisStore
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_store import SqliteStore


class Beside:
    """A store beside the embedded log: ``make(log)`` opens it, ``maker`` is the Python that does."""

    publishes = True

    def __init__(self, logs, make, maker):
        self.logs, self.clock, self.make = logs, logs.clock, make
        self.opener = logs.opener.replace("log, store", "log, _") + maker
        self.create, self.delete, self.trim = logs.create, logs.delete, logs.trim
        self.opened = []

    def open(self):
        log = self.logs.open()[0]
        store, close = self.make(log)
        self.opened.append(close)
        return log, store

    def close(self):
        for close in self.opened:
            close()


def sqlite_beside(logs, folder):
    """State in a file of its own."""
    path = folder / "state" / "state.db"

    def make(log):
        file = SqliteFile(path)
        return SqliteStore(log, file), file.close

    maker = (
        "from millstream.adapters.sqlite_file import SqliteFile\n"
        "from millstream.adapters.sqlite_store import SqliteStore\n"
        f"store = SqliteStore(log, SqliteFile(Path({str(path)!r})))\n"
    )
    return Beside(logs, make, maker)


def redis_beside(logs, url):
    """State on a server, in a namespace of this test's own."""
    namespace = f"t{uuid.uuid4().hex[:12]}"

    def make(log):
        store = RedisStore(log, url, namespace)
        return store, store.close

    maker = f"from millstream.adapters.redis_store import RedisStore\nstore = RedisStore(log, {url!r}, {namespace!r})\n"
    return Beside(logs, make, maker)
