"""Byte ranges of files over HTTP: asked for, checked, and asked for again when a connection breaks.

Nothing that a server says is believed: status, Content-Range, total size and ETag have to agree with
what was asked for and with each other. Redirects to other hosts lose the token; httpx sees to that.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NoReturn

from dspark_convert.errors import EnvironmentFault, InputError

#: seconds without a byte after which a connection counts as broken
READ_TIMEOUT = 30.0
#: bytes a second, on average over SLOW_SECONDS, below which a connection counts as broken too
MIN_RATE = 1024
SLOW_SECONDS = 60.0
#: failures in a row that are borne, and the seconds before the first new attempt (doubled each time)
MAX_RETRIES = 5
FIRST_PAUSE = 0.5
#: a server that asks for more seconds (Retry-After) is left alone
MAX_PAUSE = 300
#: bytes that make a failure no longer one "in a row": fewer would let a server keep us for ever
PROGRESS_BYTES = 1 << 20


class Stop(threading.Event):
    """Ends what other threads do: their waits, and their reads, which may otherwise take READ_TIMEOUT."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: set[socket.socket] = set()

    def set(self) -> None:
        super().set()
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def watch(self, answer: Any) -> Iterator[None]:
        """Have ``set`` cut the connection of this answer."""
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        self._sockets.add(connection)
        try:
            yield
        finally:
            self._sockets.discard(connection)


def pause(seconds: float, stop: Stop) -> None:
    """Wait, unless ``stop`` is set meanwhile."""
    stop.wait(seconds)


class Transient(Exception):
    """Worth another attempt, after ``seconds`` if the server said so. The message says what failed."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Changed(InputError):
    """The file is not the one that the repository lists, or that was read before."""


@dataclass
class Patience:
    """Waits between attempts, and gives up; ``note`` is told of every wait."""

    what: str
    note: Callable[[str], None]
    stop: Stop = field(default_factory=Stop)
    failures: int = 0
    since_failure: int = 0

    def progress(self, count: int) -> None:
        self.since_failure += count
        if self.since_failure >= PROGRESS_BYTES:
            self.failures = 0

    def wait(self, fault: Transient) -> None:
        """Raises EnvironmentFault once there were too many failures, or the wait asked for is too long."""
        self.failures += 1
        self.since_failure = 0
        seconds = fault.seconds if fault.seconds is not None else FIRST_PAUSE * 2 ** (self.failures - 1)
        if self.failures > MAX_RETRIES or seconds > MAX_PAUSE:
            when = f" (it asks to wait {seconds:.0f} s)" if seconds > MAX_PAUSE else ""
            raise EnvironmentFault(
                f"{self.what} cannot be fetched: {fault}{when}; run the same command again later, "
                "which goes on where this one stopped."
            )
        self.note(f"{self.what}: {fault}; next attempt in {seconds:g} s")
        pause(seconds, self.stop)


@dataclass(frozen=True)
class RemoteFile:
    """A file of the hub at a commit. ``size`` in bytes; ``refused`` raises what a bad status means.

    ``tags``: its ETags seen so far, by all who read it: at most one, or it changed under the same name.
    """

    name: str
    url: str
    size: int
    headers: dict[str, str]
    refused: Callable[[str, int, Any], NoReturn]
    tags: set[str]


@contextmanager
def transport(host: str) -> Iterator[None]:
    """Turn what httpx raises for a broken connection into Transient, for an unusable proxy into EnvironmentFault."""
    import httpx2

    try:
        yield
    except httpx2.TimeoutException:
        raise Transient(f"{host} did not answer for {READ_TIMEOUT:g} s") from None
    except (httpx2.NetworkError, httpx2.ProtocolError, httpx2.ProxyError) as fault:
        raise Transient(f"the connection to {host} broke ({str(fault) or type(fault).__name__})") from None
    except ImportError as fault:
        if "SOCKS" not in str(fault):
            raise
        raise EnvironmentFault(
            "a SOCKS proxy is set (ALL_PROXY, HTTPS_PROXY or HTTP_PROXY), which needs the package socksio: "
            "run `pip install socksio`, or set an HTTP proxy."
        ) from None
    except httpx2.HTTPError as fault:  # too many redirects, another scheme
        raise EnvironmentFault(f"{host} cannot be read: {str(fault).rstrip('.')}.") from None


def raise_if_transient(status: int, headers: Any) -> None:
    """Raise Transient for the statuses that pass: 408, 429 and all of 5xx."""
    if status not in (408, 429) and status < 500:
        return
    after = headers.get("retry-after", "").strip()
    why = "it was asked too often" if status == 429 else f"the server has a fault (status {status})"
    raise Transient(why, float(after) if after.isdecimal() and len(after) < 9 else None)


@contextmanager
def open_range(file: RemoteFile, begin: int, end: int, stop: Stop) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Ask for the bytes ``begin`` to ``end`` (exclusive): where the answer starts, and its pieces.

    It starts at 0 and is the whole file where the server does not do ranges. The pieces are at most
    the bytes promised; fewer end in Transient. Raises Transient for what may pass, EnvironmentFault
    for a server that lies, InputError for a file that is not the one expected.
    """
    import httpx2
    from huggingface_hub import get_session

    headers = {**file.headers, "Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    host = httpx2.URL(file.url).host
    with (
        transport(host),
        get_session().stream("GET", file.url, headers=headers, timeout=READ_TIMEOUT, follow_redirects=True) as answer,
    ):
        if answer.status_code not in (200, 206):
            raise_if_transient(answer.status_code, answer.headers)
            if answer.status_code == 416:
                raise _changed(file, f"byte {begin} is said to lie outside it")
            file.refused(file.name, answer.status_code, answer.headers)
        first, last = (0, file.size) if answer.status_code == 200 else (begin, end)
        _check(file, answer, first, last)
        with stop.watch(answer):
            yield first, _promised(file, paced(answer.iter_raw(), host), last - first)


def _check(file: RemoteFile, answer: Any, start: int, stop: int) -> None:
    """The headers of an answer that should hold the bytes from ``start`` to ``stop``."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise _lie(file, f"content-encoding {answer.headers['content-encoding']!r}, which was not asked for")
    if answer.status_code == 206:
        said = answer.headers.get("content-range", "")
        match = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", said)
        if not match or (int(match[1]), int(match[2]) + 1) != (start, stop):
            raise _lie(file, f"content-range {said!r}, asked were bytes {start}-{stop - 1}")
        if match[3] != "*" and int(match[3]) != file.size:
            raise _changed(file, f"its size is {match[3]} now")
    length = answer.headers.get("content-length")
    if length is not None and length != str(stop - start):
        if answer.status_code == 200:
            raise _changed(file, f"its size is {length} now")
        raise _lie(file, f"content-length {length} for {stop - start} bytes")
    # The hub's own tag, where it hands over to a CDN that has others.
    links = [hop.headers.get("x-linked-etag") for hop in answer.history]
    tag = next((link for link in links if link), answer.headers.get("etag"))
    if tag:
        file.tags.add(tag.removeprefix("W/").strip('"'))
    if len(file.tags) > 1:
        raise _changed(file, "its ETag is another now")


def paced(chunks: Iterator[bytes], host: str) -> Iterator[bytes]:
    """``chunks`` as they come from ``host``; raises Transient once they come slower than MIN_RATE.

    The time that is spent on what came does not count.
    """
    waited, came = 0.0, 0
    while True:
        asked = monotonic()
        chunk = next(chunks, None)
        waited += monotonic() - asked
        if chunk is None:
            return
        came += len(chunk)
        if waited >= SLOW_SECONDS:
            if came < waited * MIN_RATE:
                raise Transient(f"{host} sent less than {MIN_RATE} bytes a second for {SLOW_SECONDS:g} s")
            waited, came = 0.0, 0
        yield chunk


def _promised(file: RemoteFile, chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    left = count
    for chunk in chunks:
        if len(chunk) > left:
            raise _lie(file, f"more bytes than the {count} promised")
        left -= len(chunk)
        yield chunk
    if left:
        raise Transient(f"the answer ended {left} bytes early")


def _lie(file: RemoteFile, what: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the server answers {what} for {file.name}: it or a proxy before it does byte ranges wrongly; "
        "fetch the whole repository (hf download) and give its directory."
    )


def _changed(file: RemoteFile, how: str) -> Changed:
    return Changed(
        f"{file.name} is not the file that the repository lists with {file.size} bytes ({how}); "
        "run the command again, and report it to the hub if it stays so."
    )


def read_range(file: RemoteFile, begin: int, end: int, note: Callable[[str], None], *, through: bool = True) -> bytes:
    """The bytes ``begin`` to ``end`` (exclusive), held in memory: for headers and small files.

    ``through``: whether to read up to them where the server sends the whole file; else EnvironmentFault.
    """
    patience = Patience(file.name, note)
    data = bytearray()
    while len(data) < end - begin:
        first = begin + len(data)
        try:
            with open_range(file, first, end, patience.stop) as (position, chunks):
                if position != first and not through:
                    raise EnvironmentFault(f"the server does not send byte ranges of {file.name}.")
                for chunk in chunks:
                    data += chunk[max(0, first - position) :][: end - begin - len(data)]
                    position += len(chunk)
                    patience.progress(len(chunk))
                    if len(data) == end - begin:  # of a whole file, sent by a server without ranges
                        break
        except Transient as fault:
            patience.wait(fault)
    return bytes(data)
