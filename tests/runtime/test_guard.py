"""The child process: whatever ends it, the parent lives and says what happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.guard import Outcome, run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.shape import DraftShape
from tests.runtime.pairs import PairFiles

PRELUDE = """
import json, os, signal, sys
job = json.loads(sys.stdin.readline())
def tell(**message):
    print(json.dumps(message), flush=True)
tell(phase="decoding")
"""


def run_script(body: str, timeout: float = 30.0, prelude: str = PRELUDE) -> Outcome:
    return run_job({"library": "libx.so", "n": 7}, timeout=timeout, arguments=("-c", prelude + body))


def test_result_and_phases_come_back() -> None:
    phases: list[str] = []
    script = PRELUDE + "tell(phase='more'); tell(result={'twice': 2 * job['n']})"
    outcome = run_job({"n": 7}, timeout=30, on_phase=phases.append, arguments=("-c", script))
    assert outcome.result == {"twice": 14}
    assert outcome.fault == ""
    assert phases == ["decoding", "more"]


def test_child_gets_the_environment_that_keeps_ggml_quiet() -> None:
    outcome = run_script("import dspark_convert; tell(result=dict(os.environ))")
    assert outcome.result is not None
    assert outcome.result["GGML_NO_BACKTRACE"] == "1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SIGABRT", "stopped on an assertion of its own"),
        ("SIGSEGV", "read memory that is not its own"),
        ("SIGFPE", "divided by zero"),
        ("SIGILL", "built for another one"),
        ("SIGKILL", "memory ran out"),
        ("SIGBUS", "cut short"),
        ("SIGUSR1", "ended by SIGUSR1"),
    ],
)
def test_signals_become_sentences(name: str, words: str) -> None:
    outcome = run_script(f"os.kill(os.getpid(), signal.{name})")
    assert outcome.result is None
    assert words in outcome.fault
    assert outcome.fault.startswith("while decoding, ")
    assert outcome.fault.endswith(".")
    assert outcome.phase == "decoding"


def test_assertion_text_is_told() -> None:
    outcome = run_script(
        "os.write(2, b'noise\\ndspark-abort: x.cpp:7: GGML_ASSERT(a > 0) failed\\n'); os.kill(os.getpid(), 6)"
    )
    assert outcome.fault.endswith("x.cpp:7: GGML_ASSERT(a > 0) failed.")
    assert outcome.log[0] == "noise"


def test_end_without_a_result_tells_the_last_line() -> None:
    outcome = run_script("tell(phase='waiting'); print('boom', file=sys.stderr); sys.exit(9)")
    assert outcome.fault == "while waiting, the process that runs llama.cpp ended with code 9: boom."


def test_half_a_line_is_not_taken_for_a_result() -> None:
    outcome = run_script("""sys.stdout.write('{"result": {"a"'); sys.stdout.flush(); os._exit(0)""")
    assert outcome.result is None
    assert "with code 0: no message" in outcome.fault


def test_input_error_gets_the_library_s_complaint() -> None:
    outcome = run_script(
        "print('llama_model_load: error loading model: wrong number of tensors', file=sys.stderr, flush=True);"
        "tell(error={'kind': 'input', 'message': 'llama.cpp refused to load the draft d.gguf'})"
    )
    assert outcome.fault == "llama.cpp refused to load the draft d.gguf: wrong number of tensors."


def test_environment_error_is_raised() -> None:
    with pytest.raises(EnvironmentFault, match="too old"):
        run_script("tell(error={'kind': 'environment', 'message': 'too old'})")


def test_crash_while_loading_the_library_is_its_own_fault() -> None:
    with pytest.raises(EnvironmentFault, match=r"libx\.so cannot be used: .*memory that is not its own"):
        run_script("tell(phase='loading the library'); os.kill(os.getpid(), signal.SIGSEGV)")


def test_hanging_child_is_ended() -> None:
    outcome = run_script("tell(phase=f'pid {os.getpid()}'); signal.pause()", timeout=1.5)
    assert outcome.fault.startswith("while pid ")
    assert "the 1.5 seconds allowed ran out" in outcome.fault
    assert "--timeout" in outcome.fault
    with pytest.raises(ProcessLookupError):
        os.kill(int(outcome.phase.split()[1]), 0)


def test_what_the_child_started_is_ended_too() -> None:
    """A process of its own that holds the pipes open would otherwise keep the run waiting for ever."""
    outcome = run_script(
        "import subprocess; other = subprocess.Popen(['sleep', '600']); tell(phase=f'pid {other.pid}'); os._exit(3)"
    )
    assert outcome.fault.endswith("ended with code 3: no message.")
    assert has_ended(int(outcome.phase.split()[1]))


def has_ended(pid: int, within: float = 10.0) -> bool:
    """Whether the process is gone, or dead and only not yet waited for by whoever inherited it.

    A signal is not delivered at once, so the state is asked for ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("junk", ["7", "null", "[1]", "{", "\\xff", '{"phase"'])
def test_junk_between_the_messages_is_passed_by(junk: str) -> None:
    outcome = run_script(f"print({junk!r} + 100_000 * ' ', flush=True); tell(result={{'n': 1}})")
    assert outcome.result == {"n": 1}


def test_endless_line_of_log_is_cut() -> None:
    outcome = run_script("sys.stderr.write('x' * 3_000_000 + ' the end'); sys.stderr.flush(); os._exit(1)")
    assert outcome.log[-1].endswith(" the end")
    assert sum(map(len, outcome.log)) < 2_000_000


def test_interrupt_ends_the_child() -> None:
    children: list[int] = []

    def interrupt(phase: str) -> None:
        if phase.startswith("pid "):
            children.append(int(phase.split()[1]))
            os.kill(os.getpid(), signal.SIGINT)

    script = PRELUDE + "tell(phase=f'pid {os.getpid()}'); signal.pause()"
    with pytest.raises(KeyboardInterrupt):
        run_job({"n": 1}, timeout=30, on_phase=interrupt, arguments=("-c", script))
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


def test_large_job_reaches_a_child_and_a_dead_one_does_no_harm() -> None:
    outcome = run_job(
        {"text": "x" * 500_000},
        timeout=30,
        arguments=("-c", PRELUDE + "tell(result={'n': len(job['text'])})"),
    )
    assert outcome.result == {"n": 500_000}
    outcome = run_job({"text": "x" * 500_000}, timeout=30, arguments=("-c", "raise SystemExit(5)"))
    assert "code 5" in outcome.fault


def test_worker_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """A target that never opens (a pipe without a writer) keeps the worker in native code."""
    pipe = tmp_path / "target.gguf"
    os.mkfifo(pipe)
    shape = {
        "block_size": 2,
        "reads_anchor": True,
        "mask_token_id": 1,
        "causal": False,
        "has_confidence_head": False,
    }
    job = {"library": str(find_library().path), "target": str(pipe), "draft": "d", "shape": shape}
    with subprocess.Popen(
        [sys.executable, "-m", "dspark_convert.runtime.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            assert worker.stdin and worker.stdout
            worker.stdin.write(json.dumps(job).encode() + b"\n")
            worker.stdin.flush()
            assert b"library" in worker.stdout.readline()
            assert b"target" in worker.stdout.readline()
            assert worker.poll() is None
            worker.stdin.close()
            assert worker.wait(20) == 1
        finally:
            worker.kill()


def test_real_assertion_of_the_library_is_told(random_pair: PairFiles) -> None:
    """What happens to a file that the checks before would have caught, if they did not exist."""
    draft = random_pair.broken("no-block-size", lambda want: want.kv.pop("dflash.block_size"))
    shape = DraftShape(7, reads_anchor=True, mask_token_id=507, causal=False, has_confidence_head=True)
    job = {
        "library": str(find_library().path),
        "target": str(random_pair.target),
        "draft": str(draft),
        "shape": asdict(shape),
        "prompts": ["boat"],
        "max_tokens": 8,
    }
    outcome = run_job(job, timeout=60)
    assert outcome.result is None
    assert outcome.fault.startswith("while creating the contexts, llama.cpp stopped on an assertion of its own: ")
    assert "requires 'dflash.block_size' in GGUF metadata" in outcome.fault
