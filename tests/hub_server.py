"""A hub on loopback: the answers that huggingface_hub asks for, counted, and bent as a test wants them."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

COMMIT = hashlib.sha1(b"first", usedforsecurity=False).hexdigest()


@dataclass
class Reply:
    """What will be sent; ``cut``: bytes of the body after which the connection breaks; ``stall``: bytes
    after which it waits, the event that then is set, and the one that is waited for."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    cut: int | None = None
    stall: tuple[int, threading.Event, threading.Event] | None = None


class Asked(NamedTuple):
    """One request: the file's ``name`` ("": the list of files, "?": neither), ``range`` asked for, body bytes sent."""

    name: str
    range: tuple[int, int] | None
    sent: int
    authorization: str | None
    port: int


Bend = Callable[[Reply], Reply]


@dataclass
class HubServer:
    """``files`` of the one repository. ``bends``: file name -> what becomes of its next replies, one each
    ("": those that list the files)."""

    repo: str
    files: dict[str, bytes]
    commit: str = COMMIT
    bends: dict[str, list[Bend]] = field(default_factory=dict)
    log: list[Asked] = field(default_factory=list)
    #: of another server of the same files, to which this one redirects
    cdn: str | None = None
    held: dict[str, threading.Event] = field(default_factory=dict)

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sent(self, *names: str) -> int:
        """Bytes of bodies sent for the files ``names`` (for all files if none are given)."""
        return sum(
            asked.sent for asked in self.log if asked.name not in ("", "?") and (not names or asked.name in names)
        )

    def asked(self, name: str) -> list[tuple[int, int] | None]:
        """The ranges asked of a file, in order."""
        return [asked.range for asked in self.log if asked.name == name]

    def hold(self, name: str) -> threading.Event:
        """Let requests for a file hang until the event that is returned is set."""
        return self.held.setdefault(name, threading.Event())

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name, span = "", _range(request.headers.get("range"))
        path = unquote(urlsplit(request.path).path)
        if path.startswith("/api/models/"):
            reply = self._info(path)
        elif path.startswith(prefix := f"/{self.repo}/resolve/{self.commit}/"):
            name = path.removeprefix(prefix)
            reply = self._file(name, span, request.path)
        else:  # huggingface_hub has questions of its own
            name, reply = "?", Reply(404, {"x-error-code": "RepoNotFound"})
        if bends := self.bends.get(name):
            reply = bends.pop(0)(reply)
        if name in self.held:
            self.held[name].wait()
            request.close_connection = True
            return
        body = reply.body if reply.cut is None else reply.body[: reply.cut]
        self.log.append(Asked(name, span, len(body), request.headers.get("authorization"), self.port))
        request.send_response(reply.status)
        sized = {} if "transfer-encoding" in reply.headers else {"content-length": str(len(reply.body))}
        for key, value in {**sized, **reply.headers}.items():
            request.send_header(key, value)
        request.end_headers()
        if reply.stall is not None:
            count, reached, release = reply.stall
            request.wfile.write(body[:count])
            reached.set()
            release.wait()
            body = body[count:]
        request.wfile.write(body)
        if reply.cut is not None:
            request.close_connection = True

    def _info(self, path: str) -> Reply:
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        if not match or match[1] != self.repo:
            return Reply(404, {"x-error-code": "RepoNotFound"})
        if match[2] not in (None, "main", "v1", "refs/pr/1", self.commit):
            return Reply(404, {"x-error-code": "RevisionNotFound"})
        siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
        info = {"id": self.repo, "sha": self.commit, "siblings": siblings, "private": False, "tags": []}
        return Reply(200, {"content-type": "application/json"}, json.dumps(info).encode())

    def _file(self, name: str, span: tuple[int, int] | None, path: str) -> Reply:
        if name not in self.files:
            return Reply(404, {"x-error-code": "EntryNotFound"})
        data = self.files[name]
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        if self.cdn is not None:
            return Reply(302, {"location": self.cdn + path, "x-linked-etag": tag, "x-linked-size": str(len(data))})
        if span is None:
            return Reply(200, {"etag": tag}, data)
        begin, end = span
        if not begin < min(end, len(data)):
            return Reply(416, {"content-range": f"bytes */{len(data)}"})
        end = min(end, len(data))
        return Reply(206, {"etag": tag, "content-range": f"bytes {begin}-{end - 1}/{len(data)}"}, data[begin:end])


def _range(text: str | None) -> tuple[int, int] | None:
    """(begin, end) of a Range header, end exclusive."""
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", text or "")
    return (int(match[1]), int(match[2]) + 1) if match else None
