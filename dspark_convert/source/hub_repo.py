"""A repository on the hub, pinned to a commit: its files and their sizes, as the hub or the cache says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from dspark_convert import __version__
from dspark_convert.errors import DsparkError, EnvironmentFault, InputError, UsageError
from dspark_convert.source.hub_cache import Cache, cache_base, load_json, repository, save_json
from dspark_convert.source.hub_http import (
    READ_TIMEOUT,
    Patience,
    RemoteFile,
    Transient,
    paced,
    raise_if_transient,
    transport,
)
from dspark_convert.source.hub_id import HubId, is_folder
from dspark_convert.source.jsonfile import parse_object
from dspark_convert.words import listed

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

#: folders that are named of a repository without the one that was asked for
TOLD_FOLDERS = 8

#: of the answer that lists a repository's files; each takes some 200
MAX_LIST_BYTES = 32 << 20


@dataclass(frozen=True)
class Repository:
    """``files``: name (with its folders) -> bytes, of a hub id with a folder those in it, by their names from there.
    ``offline``: nothing may be fetched. ``tags``: name -> its ETags."""

    id: HubId
    commit: str
    files: dict[str, int]
    cache: Cache
    offline: bool
    tags: dict[str, set[str]] = field(default_factory=dict)

    def remote(self, name: str) -> RemoteFile:
        """The file ``name`` at the commit, with the token in its headers if there is one."""
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils._headers import build_hf_headers

        if self.offline:
            raise EnvironmentFault(
                f"{name} of {self.id} at commit {self.commit} is not in the cache {self.cache.base}, and the hub is "
                "set offline: unset HF_HUB_OFFLINE, or run this once where there is a network."
            )
        url = hf_hub_url(
            self.id.repo, name, subfolder=self.id.folder, revision=self.commit, endpoint=constants.ENDPOINT
        )
        headers = build_hf_headers(library_name="dspark-convert", library_version=__version__)

        def refused(what: str, status: int, headers: Any) -> NoReturn:
            raise refusal(self.id, what, status, headers)

        return RemoteFile(name, url, self.files[name], headers, refused, self.tags.setdefault(name, set()))


def resolve(hub_id: HubId, note: Callable[[str], None]) -> Repository:
    """Pin ``hub_id`` to a commit and list its files; offline (HF_HUB_OFFLINE) from the cache.

    Raises UsageError where there is no such repository, revision or folder, EnvironmentFault where the hub
    does not let it be seen or cannot be reached.
    """
    from huggingface_hub import constants

    base = cache_base()
    if constants.is_offline_mode():
        return _remembered(hub_id, base)
    commit, files = _ask(hub_id, note)
    cache = Cache(base, hub_id.repo, commit)
    cache.prepare()
    known = load_json(cache.repository / "refs.json")
    if known.get(_key(hub_id)) != commit:
        save_json(cache.repository / "refs.json", {**known, _key(hub_id): commit})
    if load_json(cache.parts / "files.json") != files:
        save_json(cache.parts / "files.json", files)
    return _open(hub_id, cache, files, offline=False)


def _open(hub_id: HubId, whole: Cache, files: dict[str, int], *, offline: bool) -> Repository:
    """The repository, or its folder, of whose ``files`` all are listed."""
    if not hub_id.folder:
        return Repository(hub_id, whole.commit, files, whole, offline)
    within = f"{hub_id.folder}/"
    inside = {name.removeprefix(within): size for name, size in files.items() if name.startswith(within)}
    if not inside and files:
        folders = (["its root"] if "config.json" in files else []) + config_folders(files)
        have = listed(folders, TOLD_FOLDERS) or "nowhere"
        root = replace(hub_id, folder="")
        raise UsageError(f"{root} has no folder {hub_id.folder}; a config.json lies in: {have}.")
    cache = replace(whole, folder=hub_id.folder)
    cache.prepare()
    return Repository(hub_id, whole.commit, inside, cache, offline)


def config_folders(files: Iterable[str]) -> list[str]:
    """The folders that hold a config.json and that a hub id can name."""
    folders = (name.removesuffix("/config.json") for name in files if name.endswith("/config.json"))
    return sorted(folder for folder in folders if is_folder(folder))


def _key(hub_id: HubId) -> str:
    return hub_id.revision or "main"


def _remembered(hub_id: HubId, base: Path) -> Repository:
    """From the cache's own notes, else from huggingface_hub's cache."""
    from huggingface_hub import constants

    revision = _key(hub_id)
    hub = repository(Path(constants.HF_HUB_CACHE), hub_id.repo)
    commit: Any = revision if _COMMIT.fullmatch(revision) else None
    commit = commit or load_json(repository(base, hub_id.repo) / "refs.json").get(revision)
    if commit is None and (hub / "refs" / revision).is_file():
        commit = (hub / "refs" / revision).read_text("utf-8", "replace").strip()
    if isinstance(commit, str) and _COMMIT.fullmatch(commit):
        cache = Cache(base, hub_id.repo, commit)
        files = {name: size for name, size in load_json(cache.parts / "files.json").items() if type(size) is int}
        if files or (hub / "snapshots" / commit / hub_id.folder).is_dir():
            return _open(hub_id, cache, files, offline=True)
    raise EnvironmentFault(
        f"nothing of {hub_id} is in the cache {base}, and the hub is set offline: unset HF_HUB_OFFLINE, "
        "or run this once where there is a network."
    )


def _ask(hub_id: HubId, note: Callable[[str], None]) -> tuple[str, dict[str, int]]:
    from huggingface_hub import constants

    patience = Patience(f"the list of files of {hub_id}", note)
    while True:
        try:
            with transport(constants.ENDPOINT):
                info = _listing(hub_id)
            break
        except Transient as fault:
            patience.wait(fault)
    commit = str(info.get("sha"))
    listed = info.get("siblings") or ()
    if not isinstance(listed, Sequence) or not all(isinstance(file, dict) for file in listed):
        raise _no_hub()
    sizes = [(file.get("rfilename"), file.get("size")) for file in listed]
    files = {name: size for name, size in sizes if isinstance(name, str) and type(size) is int and size >= 0}
    if not _COMMIT.fullmatch(commit) or len(files) != len(sizes):
        raise EnvironmentFault(
            f"{constants.ENDPOINT} lists {hub_id} without its commit or its files' sizes; "
            "see whether HF_ENDPOINT is right."
        )
    return commit, files


def _listing(hub_id: HubId) -> dict[str, Any]:
    """The hub's answer that lists the files with their sizes; read here, as HfApi.model_info takes one of any size.

    Raises Transient for what may pass, UsageError, InputError or EnvironmentFault for what does not.
    """
    import httpx2
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils._headers import build_hf_headers

    revision = "" if hub_id.revision is None else f"/revision/{quote(hub_id.revision, safe='')}"
    url = f"{constants.ENDPOINT}/api/models/{hub_id.repo}{revision}?blobs=true"
    headers = build_hf_headers(library_name="dspark-convert", library_version=__version__)
    headers["Accept-Encoding"] = "identity"
    data = bytearray()
    try:
        with get_session().stream("GET", url, headers=headers, timeout=READ_TIMEOUT, follow_redirects=True) as answer:
            if not answer.is_success:
                raise_if_transient(answer.status_code, answer.headers)
                raise refusal(hub_id, "it", answer.status_code, answer.headers)
            if answer.headers.get("content-encoding", "identity") != "identity":  # unpacked it has any size
                raise _no_hub()
            for chunk in paced(answer.iter_raw(), constants.ENDPOINT):
                data += chunk
                if len(data) > MAX_LIST_BYTES:
                    message = f"{constants.ENDPOINT} lists {hub_id} in more than {MAX_LIST_BYTES} bytes"
                    raise EnvironmentFault(f"{message}, which no list of files has; see whether HF_ENDPOINT is right.")
        return parse_object(bytes(data), "the list of files")
    except httpx2.ConnectError as fault:
        raise EnvironmentFault(
            f"there is no directory {hub_id} here, and the hub at {constants.ENDPOINT} cannot be reached "
            f"({fault}); with HF_HUB_OFFLINE=1 what is in the cache is used."
        ) from None
    except (InputError, ValueError, httpx2.InvalidURL):
        raise _no_hub() from None


def _no_hub() -> EnvironmentFault:
    from huggingface_hub import constants

    return EnvironmentFault(f"{constants.ENDPOINT} does not answer as a hub does; see whether HF_ENDPOINT is right.")


def refusal(hub_id: HubId, what: str, status: int, headers: Any) -> DsparkError:
    """What the hub's status means, and what helps; ``what`` is the file that was asked for."""
    from huggingface_hub import constants, get_token

    where = f"{constants.ENDPOINT}/{hub_id.repo}"
    code = headers.get("x-error-code", "")
    token = "the token in use (HF_TOKEN or `hf auth login`)" if get_token() else None
    if code == "RevisionNotFound":
        return UsageError(f"{hub_id.repo} has no revision {hub_id.revision or 'main'}; look for its name at {where}.")
    if code == "EntryNotFound":
        return InputError(f"{what} is listed for {hub_id}, but the hub has no such file; run the command again.")
    if code == "GatedRepo" or status == 403:
        how = f"the account of {token}" if token else "your account, whose token HF_TOKEN or `hf auth login` gives"
        return EnvironmentFault(f"{hub_id} is gated: accept its terms at {where} with {how}.")
    if status == 404 or code == "RepoNotFound":
        if token:
            private = f"if it is private, {token} does not see it"
        else:
            private = "if it is private, set HF_TOKEN or run `hf auth login`"
        return UsageError(f"there is no directory {hub_id} here and no repository {where}: check the name; {private}.")
    if status == 401:
        if token:
            return EnvironmentFault(f"{where} refuses {token}: renew it.")
        return EnvironmentFault(
            f"{where} does not exist or asks for a token: check the name, then set HF_TOKEN or run `hf auth login`."
        )
    return EnvironmentFault(f"{where} answers with status {status} for {what}; try again later.")
