"""A server may lie about ranges, sizes and tags, or send what was not asked for: nothing of it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dspark_convert.errors import DsparkError, EnvironmentFault, InputError
from dspark_convert.source.hub import materialise
from dspark_convert.source.hub_http import Transient, paced
from dspark_convert.source.hub_id import HubId
from tests.checkpoints import Tensor, read_tensors
from tests.hub_place import REPO, HubPlace, Told, noise, shard_of, survey
from tests.hub_server import Reply

SHARD = "model.safetensors"
SIZE = 1 << 18


@pytest.fixture
def stocked(hub: HubPlace) -> HubPlace:
    """A hub with one shard, of which the tensors "b" and "d" are asked for."""
    tensors = {name: noise(ord(name), SIZE) for name in "abcd"}
    hub.ours = {name: tensors[name] for name in "bd"}
    hub.server.files = {"config.json": b"{}", SHARD: shard_of(tensors)}
    return hub


def fetched(hub: HubPlace) -> dict[str, Tensor]:
    told = Told()
    root = materialise(survey(HubId(REPO), lambda _config, _names: ["b", "d"], told), told)
    assert root == hub.snapshot
    return read_tensors(root / SHARD)


def headers(reply: Reply, **changes: str) -> Reply:
    return Reply(reply.status, {**reply.headers, **{k.replace("_", "-"): v for k, v in changes.items()}}, reply.body)


def other_range(reply: Reply) -> Reply:
    return headers(reply, content_range=f"bytes 0-{len(reply.body) - 1}/{4 * SIZE}")


def no_range(reply: Reply) -> Reply:
    return Reply(206, {"etag": reply.headers["etag"]}, reply.body)


def multipart(reply: Reply) -> Reply:
    return Reply(206, {"content-type": "multipart/byteranges; boundary=x"}, b"--x" + reply.body)


def less_promised(reply: Reply) -> Reply:
    """A shorter range than was asked for, honestly labelled."""
    begin, end = reply.headers["content-range"].removeprefix("bytes ").split("/")[0].split("-")
    total = reply.headers["content-range"].split("/")[1]
    return Reply(206, {"content-range": f"bytes {begin}-{int(end) - 1}/{total}"}, reply.body[:-1])


def too_long(reply: Reply) -> Reply:
    """More bytes than its own Content-Range has; without a length, until the connection closes."""
    more = Reply(206, {**reply.headers, "transfer-encoding": "chunked"}, reply.body)
    size = len(reply.body) + 5
    more.body = f"{size:x}\r\n".encode() + reply.body + b"extra" + b"\r\n0\r\n\r\n"
    return more


def wrong_length(reply: Reply) -> Reply:
    return headers(reply, content_length=str(len(reply.body) + 7))


def grown(reply: Reply) -> Reply:
    span = reply.headers["content-range"].split("/")[0]
    return headers(reply, content_range=f"{span}/{5 * SIZE}")


def another_tag(reply: Reply) -> Reply:
    return headers(reply, etag='"0123"')


def squeezed(reply: Reply) -> Reply:
    return headers(reply, content_encoding="gzip")


def short_whole(reply: Reply) -> Reply:
    return Reply(200, {}, reply.body)


def outside(_reply: Reply) -> Reply:
    return Reply(416, {"content-range": "bytes */10"})


@pytest.mark.parametrize(
    ("lie", "kind", "says"),
    [
        (other_range, EnvironmentFault, "does byte ranges wrongly"),
        (no_range, EnvironmentFault, "does byte ranges wrongly"),
        (multipart, EnvironmentFault, "does byte ranges wrongly"),
        (less_promised, EnvironmentFault, "does byte ranges wrongly"),
        (too_long, EnvironmentFault, "more bytes than the"),
        (wrong_length, EnvironmentFault, "content-length"),
        (squeezed, EnvironmentFault, "content-encoding 'gzip'"),
        (grown, InputError, "its size is 1310720 now"),
        (another_tag, InputError, "its ETag is another now"),
        (short_whole, InputError, "its size is"),
        (outside, InputError, "said to lie outside"),
    ],
)
@pytest.mark.parametrize("request_number", [1, 2])
def test_lies(
    lie: Callable[[Reply], Reply], kind: type[DsparkError], says: str, request_number: int, stocked: HubPlace
) -> None:
    """Told of the first request for tensors and of the second; the header came by another before."""
    honest: list[Callable[[Reply], Reply]] = [lambda reply: reply] * request_number
    stocked.server.bends = {SHARD: [*honest, lie]}
    with pytest.raises(kind) as fault:
        fetched(stocked)
    assert says in str(fault.value) and SHARD in str(fault.value)
    assert not (stocked.snapshot / SHARD).exists()
    assert stocked.waits == []  # nothing that time heals
    assert fetched(stocked) == stocked.ours


def test_a_file_that_changes_behind_its_header(stocked: HubPlace) -> None:
    """All answers with tensors agree, and are of another file than the header, of the same size."""
    other = shard_of({name: noise(ord(name), SIZE) for name in "adcb"})

    def replaced(reply: Reply) -> Reply:
        stocked.server.files[SHARD] = other
        return reply

    assert len(other) == len(stocked.server.files[SHARD])
    stocked.server.bends = {SHARD: [replaced]}
    with pytest.raises(InputError, match="its ETag is another now"):
        fetched(stocked)
    assert not (stocked.snapshot / SHARD).exists()
    assert fetched(stocked) == stocked.ours


@pytest.mark.parametrize("lie", [other_range, too_long, wrong_length, grown, short_whole])
def test_lies_about_a_small_file(lie: Callable[[Reply], Reply], stocked: HubPlace) -> None:
    stocked.server.files["config.json"] = b'{"architectures": ["A"]}'
    stocked.server.bends = {"config.json": [lambda reply: lie(Reply(206, reply.headers, reply.body[:-3]))]}
    with pytest.raises(DsparkError, match=r"config\.json"):
        fetched(stocked)
    assert fetched(stocked) == stocked.ours
    assert (stocked.snapshot / "config.json").read_bytes() == stocked.server.files["config.json"]


def test_a_drip_ends(stocked: HubPlace) -> None:
    """A server that breaks off after a few bytes each time does not keep the command for ever."""

    def drip(reply: Reply) -> Reply:
        return Reply(reply.status, reply.headers, reply.body, cut=10)

    stocked.server.bends = {SHARD: [lambda reply: reply, *[drip] * 100]}
    with pytest.raises(EnvironmentFault, match="cannot be fetched"):
        fetched(stocked)
    assert len(stocked.server.asked(SHARD)) == 7


def test_answers_without_a_length_that_end_early(stocked: HubPlace) -> None:
    def empty(reply: Reply) -> Reply:
        return Reply(206, {**reply.headers, "transfer-encoding": "chunked"}, b"0\r\n\r\n")

    stocked.server.bends = {SHARD: [lambda reply: reply, *[empty] * 100]}
    with pytest.raises(EnvironmentFault, match="the answer ended 262144 bytes early"):
        fetched(stocked)
    assert len(stocked.server.asked(SHARD)) == 7


def test_a_server_that_hangs(stocked: HubPlace) -> None:
    from dspark_convert.source import hub_http

    stocked.monkeypatch.setattr(hub_http, "READ_TIMEOUT", 0.05)
    released = stocked.server.hold(SHARD)
    with pytest.raises(EnvironmentFault, match=r"did not answer for 0\.05 s"):
        fetched(stocked)
    released.set()


def arriving(stocked: HubPlace, size: int, seconds: float) -> Iterator[bytes]:
    """1,000 chunks of ``size`` bytes, each ``seconds`` after the one before."""
    now = [0.0]
    stocked.monkeypatch.setattr("dspark_convert.source.hub_http.monotonic", lambda: now[0])

    def chunks() -> Iterator[bytes]:
        for _ in range(1000):
            now[0] += seconds
            yield bytes(size)

    return paced(chunks(), "the host")


def test_a_trickle_ends_after_a_minute(stocked: HubPlace) -> None:
    with pytest.raises(Transient, match="the host sent less than 1024 bytes a second for 60 s"):
        list(arriving(stocked, 1, 0.3))
    assert len(list(arriving(stocked, 320, 0.3))) == 1000  # 1,067 bytes a second
    with pytest.raises(Transient):
        list(arriving(stocked, 300, 0.3))
    assert len(list(arriving(stocked, 1, 0.05))) == 1000  # slow as well, but through in 50 s


@pytest.mark.parametrize("late", [False, True])
def test_a_server_that_trickles(late: bool, stocked: HubPlace) -> None:
    """From the list of files on, or once the tensors are fetched."""
    told = Told()
    found = survey(HubId(REPO), lambda _config, _names: ["b", "d"], told) if late else None
    with stocked.monkeypatch.context() as patch:
        patch.setattr("dspark_convert.source.hub_http.SLOW_SECONDS", 0.0)
        patch.setattr("dspark_convert.source.hub_http.MIN_RATE", 10**15)
        with pytest.raises(EnvironmentFault, match=r"cannot be fetched: .* bytes a second .* goes on where"):
            materialise(found, told) if found is not None else fetched(stocked)
    assert len(stocked.waits) == 5
    assert fetched(stocked) == stocked.ours


def test_redirects_without_end(stocked: HubPlace) -> None:
    stocked.server.cdn = stocked.server.url
    with pytest.raises(EnvironmentFault, match=r"127\.0\.0\.1 cannot be read: .*redirects"):
        fetched(stocked)


def test_redirect_to_another_scheme(stocked: HubPlace) -> None:
    stocked.server.cdn = "file:///etc/passwd?"
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        fetched(stocked)
