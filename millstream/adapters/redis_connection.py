"""One connection to a Redis or Valkey server, and its errors in our words: for the buffer and the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from millstream.errors import MissingExtra, SettingsError, Stuck, Unavailable

if TYPE_CHECKING:
    from redis import Redis

CONNECT_S, ANSWER_S = 5.0, 30.0
T = TypeVar("T")
logger = logging.getLogger(__name__)


def _library() -> Any:
    try:
        import redis
    except ModuleNotFoundError:
        raise MissingExtra("embedded", "a Redis or Valkey server") from None
    return redis


def without_secrets(url: str) -> str:
    """A URL as it may be shown: user and password left out."""
    parts = urlsplit(url)
    return unquote(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl())


def check_namespace(namespace: str, setting: str) -> None:
    """Raises `SettingsError` for a namespace that can't be part of a key."""
    if not namespace or not namespace.isprintable() or set(namespace) & set("{} "):
        raise SettingsError(f"{setting} = {namespace!r}: use letters, digits, '-', '_' and '.'")


class Connection:
    """``server``: a ``redis://``, ``rediss://`` or ``unix://`` URL, or a function that makes sure a server
    runs and tells its URL (asked again, once an operation, when the connection is lost). ``setting``: what
    names the URL; ``mend``: what to do when the server is full; ``inspect``: called with each new client.
    """

    def __init__(
        self,
        server: str | Callable[[], str],
        setting: str,
        mend: str,
        inspect: Callable[[Any], None],
        *,
        durable: bool = False,
    ) -> None:
        self._redis = _library()
        self._server = server
        self._setting = setting
        self._mend = mend
        self._inspect = inspect
        self._durable = durable
        self._client: Redis | None = None
        self.place = ""

    def script(self, script: str, keys: list[str], *arguments: Any) -> Any:
        """Run one Lua script."""
        return self.call(lambda client: client.eval(script, len(keys), *keys, *arguments))

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def call(self, ask: Callable[[Any], T]) -> T:
        """Ask the server; once more after a lost connection when we can have it started again."""
        errors = self._redis.exceptions
        try:
            return ask(self._connected())
        except (errors.ConnectionError, errors.TimeoutError) as error:
            self.close()
            if isinstance(self._server, str) or isinstance(error, errors.AuthenticationError):
                raise self._said(error) from None
        except errors.RedisError as error:
            raise self._said(error) from None
        try:
            return ask(self._connected())
        except errors.RedisError as error:
            self.close()
            raise self._said(error) from None

    def _connected(self) -> Redis:
        if self._client is None:
            url = self._server if isinstance(self._server, str) else self._server()
            self.place = without_secrets(url)
            try:
                client: Redis = self._redis.Redis.from_url(
                    url, socket_connect_timeout=CONNECT_S, socket_timeout=ANSWER_S
                )
            except ValueError as error:
                raise SettingsError(f"[storage] {self._setting} = {self.place!r}: {error}") from None
            try:
                self._look(client)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client

    def _look(self, client: Redis) -> None:
        """Refuse a server that would drop what we keep, and tell of one that forgets at a restart."""
        memory: Any = client.info("memory")
        policy = str(memory.get("maxmemory_policy", "noeviction"))
        if policy.startswith("allkeys"):
            raise Stuck(
                f"{self.place}: maxmemory_policy is {policy}, so the server would silently delete what is kept "
                "there; run `CONFIG SET maxmemory-policy noeviction` (and put it into its configuration)"
            )
        persistence: Any = client.info("persistence") if self._durable else {}
        if str(persistence.get("aof_enabled", 1)) == "0":
            logger.warning(
                "%s: appendonly is off: what the server forgets at a restart is made again from the log; "
                "set `appendonly yes` and `appendfsync always`",
                self.place,
            )
        self._inspect(client)

    def _said(self, error: Exception) -> Exception:
        """A redis error in our words."""
        text, errors = str(error), self._redis.exceptions
        if text.startswith("HELLO must be called"):
            return Stuck(f"{self.place} wants a password; put it into [storage] {self._setting}")
        if isinstance(error, errors.AuthenticationError):
            return Stuck(f"{self.place} refuses the credentials ({text}); put them into [storage] {self._setting}")
        if isinstance(error, errors.NoPermissionError):
            return Stuck(f"{self.place} does not allow this to the user ({text}); grant it there")
        if "maxmemory" in text:
            return Unavailable(
                f"{self.place}: the server is out of memory and took nothing; raise its maxmemory, or "
                f"{self._mend} (the writer waits)"
            )
        if isinstance(error, (errors.ConnectionError, errors.TimeoutError)):
            why = getattr(error.__context__, "strerror", None) or text.strip(".")
            return Unavailable(f"{self.place} does not answer: {why}; is it running, and is {self._where} right?")
        return Unavailable(f"{self.place}: {type(error).__name__}: {text}")

    @property
    def _where(self) -> str:
        return f"[storage] {self._setting}"
