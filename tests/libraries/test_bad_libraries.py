"""dspark-validate with libraries that are none, are others, or do harm: one sentence and the right exit code."""

from __future__ import annotations

import subprocess
import sys
from ctypes.util import find_library as find_system_library
from pathlib import Path

import pytest

from dspark_convert.runtime.library import find_library
from tests.libraries.impostor import compile_impostor
from tests.runtime.pairs import PairFiles, make_random_pair
from tests.runtime.test_guard import has_ended

COMMAND = [sys.executable, "-c", "from dspark_convert.cli.validate import main; main()"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return make_random_pair(tmp_path_factory.mktemp("pair"))


def told(pair: PairFiles, library: Path, *options: str) -> tuple[int, str]:
    """Exit code and the one line that was said."""
    command = [*COMMAND, str(pair.draft), "--target", str(pair.target), "--lib", str(library), "--quiet", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.returncode, done.stderr


def test_text_file(pair: PairFiles, tmp_path: Path) -> None:
    path = tmp_path / "libllama.so"
    path.write_text("a library? no\n")
    code, message = told(pair, path)
    assert code == 4
    assert f"{path} cannot be loaded as a library" in message


def test_empty_file(pair: PairFiles, tmp_path: Path) -> None:
    (tmp_path / "libllama.so").touch()
    code, message = told(pair, tmp_path)
    assert code == 4
    assert "cannot be loaded as a library" in message


@pytest.mark.parametrize("name", ["c", "m"])
def test_library_of_something_else(pair: PairFiles, name: str) -> None:
    found = find_system_library(name)
    assert found is not None
    (path,) = {path for path in map(Path, loaded_libraries(found)) if path.name == found}
    code, message = told(pair, path)
    assert code == 4
    assert "is not a llama.cpp library that can be used here: it lacks llama_backend_init, llama_model_free," in message
    assert "more functions; name another with --lib." in message


def loaded_libraries(name: str) -> list[str]:
    """The paths of the libraries that a process has which loads ``name``."""
    probe = f"import ctypes; ctypes.CDLL({name!r}); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    return [line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/") > 1]


@pytest.mark.parametrize(
    ("size", "words"), [(60, "cannot be loaded as a library"), (4_000_000, "cannot be used: while loading the library")]
)
def test_truncated_library(pair: PairFiles, tmp_path: Path, size: int, words: str) -> None:
    """With its headers whole, the system's loader maps what is not there, and dies of it."""
    path = tmp_path / "libllama.so"
    with find_library().path.open("rb") as whole:
        path.write_bytes(whole.read(size))
    code, message = told(pair, path)
    assert code == 4
    assert f"{path} {words}" in message


#: what happens: (C statements, what is told)
ON_LOAD = {
    "reads address 8": ("*(volatile int *) 8 = 1;", "read memory that is not its own (SIGSEGV)"),
    "divides by zero": ("raise(SIGFPE);", "divided by zero (SIGFPE)"),
    "aborts": ("abort();", "stopped on an assertion of its own"),
    "has an instruction that is none": ("__builtin_trap();", "does not have (SIGILL)"),
    "ends the process": ("exit(0);", "ended with code 0"),
    "ends the process in silence": ("_exit(7);", "ended with code 7: no message"),
    "kills itself": ("kill(getpid(), SIGKILL);", "killed llama.cpp (SIGKILL)"),
    "never comes back": ("for (;;) ;", "the 5 seconds allowed ran out"),
    "stops itself": ("raise(SIGSTOP);", "the 5 seconds allowed ran out"),
    "says its last words": ('fputs("no licence\\n", stderr); _exit(1);', "ended with code 1: no licence."),
}


@pytest.mark.parametrize("what", ON_LOAD)
def test_library_that_ends_the_process_on_load(pair: PairFiles, tmp_path: Path, what: str) -> None:
    statements, words = ON_LOAD[what]
    path = compile_impostor(tmp_path / "libllama.so", on_load=statements)
    code, message = told(pair, path, "--timeout", "5" if "5 seconds" in words else "60")
    assert code == 4
    assert f"{path} cannot be used: while loading the library, " in message
    assert words in message


IN_MODEL = {
    "reads address 8": ("*(volatile int *) 8 = 1;", "read memory that is not its own (SIGSEGV)"),
    "divides by zero": ("raise(SIGFPE);", "divided by zero (SIGFPE)"),
    "aborts": (
        'fputs("a/b.cpp:7: GGML_ASSERT(n > 0) failed\\n", stderr); abort();',
        "of its own: b.cpp:7: GGML_ASSERT(n > 0) failed",
    ),
    "never comes back": ("for (;;) ;", "the 5 seconds allowed ran out"),
    "refuses": ('fputs("error loading model: no\\n", stderr); return 0;', "refused to load the target"),
}


@pytest.mark.parametrize("what", IN_MODEL)
def test_library_that_ends_the_process_in_a_model(pair: PairFiles, tmp_path: Path, what: str) -> None:
    """Here it may be the file's fault as well: a check that failed, exit code 1."""
    statements, words = IN_MODEL[what]
    path = compile_impostor(tmp_path / "libllama.so", load_model=f"{statements} return 0;")
    code, message = told(pair, path, "--timeout", "5" if "5 seconds" in words else "60")
    assert code == 1
    assert "[validate-load]" in message
    assert words in message


REFUSES_THE_DRAFT = "static int loaded; return loaded++ ? 0 : (void *) 1;"


def test_library_that_does_not_know_the_draft_s_tensors(pair: PairFiles, tmp_path: Path) -> None:
    """Its refusal is the library's fault if it has never heard of a Markov head, and else the file's."""
    old = compile_impostor(tmp_path / "old.so", load_model=REFUSES_THE_DRAFT)
    code, message = told(pair, old)
    assert code == 4
    assert f"{old} is too old for DSpark: it knows no Markov head; use a build of b10566 or later" in message
    knows = 'static const char *volatile name = "markov_w1.weight"; (void) name;'
    code, message = told(pair, compile_impostor(tmp_path / "new.so", on_load=knows, load_model=REFUSES_THE_DRAFT))
    assert code == 1
    assert "refused to load the draft" in message


def test_library_that_writes_wherever_it_can(pair: PairFiles, tmp_path: Path) -> None:
    """Also to the pipe that carries the result: nothing that it says counts, and the run goes on."""
    junk = r'for (int fd = 1; fd < 64; fd++) { write(fd, "7\n{\"res\n", 9); dprintf(fd, "%0200000d\n", 1); }'
    path = compile_impostor(tmp_path / "libllama.so", on_load=junk)
    code, message = told(pair, path, "--timeout", "60")
    assert code == 1
    assert "refused to load the target" in message


def test_library_that_starts_another_process(pair: PairFiles, tmp_path: Path) -> None:
    """It inherits the pipes; without ending it, the command would wait for it."""
    pid = tmp_path / "pid"
    statements = f'if (!fork()) {{ FILE *f = fopen("{pid}", "w"); fprintf(f, "%d", getpid()); fclose(f); sleep(600); }}'
    path = compile_impostor(tmp_path / "libllama.so", on_load=f"{statements} sleep(1);")
    code, message = told(pair, path, "--timeout", "60")
    assert code == 1
    assert "refused to load the target" in message
    assert has_ended(int(pid.read_text()))


@pytest.mark.parametrize(("sizes", "struct"), [((200, 168), "model"), ((80, 400), "model"), ((0, 0), "model")])
def test_unknown_layout_is_refused(pair: PairFiles, tmp_path: Path, sizes: tuple[int, int], struct: str) -> None:
    path = compile_impostor(tmp_path / "libllama.so", sizes=sizes)
    code, message = told(pair, path)
    assert code == 4
    assert f"the llama.cpp library {path} lays out llama_{struct}_params in a way that is not known here" in message
    assert "use a llama.cpp build of that range with --lib, or a newer dspark-convert" in message
