"""The library where it cannot be had, and why; where it is kept; who may have written it; two who build it at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import BertModel, pipeline
from bertkit.engine.native import build, library
from bertkit.engine.native.build import library_file
from bertkit.engine.native.library import FUNCTIONS, VARIANT_SWITCH, NativeLibrary, load
from bertkit.engine.native.library_cache import UnavailableError, private_folder
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.errors import ConfigError
from bertkit.system.processor import SWITCH
from forked_child import succeeds
from lite_environment import can_seal
from native_helpers import INSTRUCTION_SETS, PLAIN, encode, native_layers, random_rows, random_weights, shape_of
from pipeline_helpers import save_tiny


@pytest.fixture(autouse=True)
def asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and an answer that is found anew, before the test and after it; the cache's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.delenv(VARIANT_SWITCH, raising=False)
    library._attempt.cache_clear()
    yield tmp_path / "cache" / "bertkit" / "native"
    library._attempt.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None if name == "ziglang" else find_spec(name))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)


def compiler_that(folder: Path, *lines: str) -> str:
    """A program in the place of a compiler."""
    path = folder / "compiler"
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def in_library(path: Path) -> bool:
    pipe = pipeline("feature-extraction", model=path, device="cpu")
    return pipe.engine.backend.weight_type is not None


def test_without_a_compiler_torch_computes(no_compiler: None, tmp_path: Path, asked_anew: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    reason = library.why_not()
    assert reason is not None
    assert "no C compiler was found; install gcc or clang" in reason
    assert library.native_library() is None
    assert not in_library(folder)
    found = pipeline("feature-extraction", model=folder, device="cpu")(["a film", "the end was bad"], pooling="mean")
    model = BertModel.from_pretrained(folder)
    same = pipeline(model=model, tokenizer=folder, precision="fp32", device="cpu")
    np.testing.assert_allclose(found, same(["a film", "the end was bad"], pooling="mean"), atol=1e-6)
    assert not [*asked_anew.iterdir()]


def test_a_compiler_that_fails_says_why(
    no_compiler: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked_anew: Path
) -> None:
    broken = compiler_that(tmp_path, "echo in a file: >&2", "echo 'x.h:3: error: no such thing' >&2", "exit 1")
    monkeypatch.setenv("CC", f"{broken} -Wall")
    assert library.why_not() == f"it could not be compiled; {broken} -Wall: x.h:3: error: no such thing"
    library._attempt.cache_clear()
    monkeypatch.setenv("CC", compiler_that(tmp_path, "exit 3"))
    assert (library.why_not() or "").endswith("exit code 3")
    library._attempt.cache_clear()
    monkeypatch.setenv("CC", compiler_that(tmp_path, r"printf 'error: \351 in Latin-1\n' >&2", "exit 1"))
    assert (library.why_not() or "").endswith("error: \ufffd in Latin-1")
    library._attempt.cache_clear()
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    assert "No such file" in (library.why_not() or "")
    assert not [*asked_anew.iterdir()], "nothing half-built stays"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.slow
def test_a_compiler_that_hangs_is_ended_with_its_children(
    no_compiler: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked_anew: Path
) -> None:
    monkeypatch.setattr(build, "SECONDS_TO_COMPILE", 1.0)
    monkeypatch.setenv("CC", compiler_that(tmp_path, "/bin/sleep 60 &", f"echo $! > {tmp_path / 'child'}", "wait"))
    started = time.monotonic()
    assert "timed out" in (library.why_not() or "")
    assert time.monotonic() - started < 30, "it does not wait for the child, which holds what the compiler wrote to"
    child = int((tmp_path / "child").read_text())
    while is_running(child) and time.monotonic() - started < 30:
        time.sleep(0.01)
    assert not is_running(child)
    assert not [*asked_anew.iterdir()]


@pytest.mark.slow
def test_the_next_compiler_is_tried(
    compiler: tuple[str, ...], native: NativeLibrary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", compiler_that(tmp_path, "exit 1"))
    monkeypatch.setattr(build, "compile_library", fast := FastCompiler(native, fails=1))
    assert library_file(tmp_path / "made").exists()
    assert fast.calls == 2


class FastCompiler:
    """In place of the compilation: the library, after so many failures."""

    def __init__(self, made: NativeLibrary, fails: int = 0, seconds: float = 0.0) -> None:
        self.content = made.path.read_bytes()
        self.calls, self.fails, self.seconds = 0, fails, seconds

    def __call__(self, compiler: Any, target: Path, flags: Any = ()) -> str | None:
        self.calls += 1
        time.sleep(self.seconds)
        if self.calls <= self.fails:
            return "failed"
        target.write_bytes(self.content)
        return None


def test_it_is_built_once_for_a_processor(
    compiler: tuple[str, ...], native: NativeLibrary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "compile_library", fast := FastCompiler(native))
    monkeypatch.setattr(build, "_test", lambda made: None)  # of a copy of a library that is in use
    first = library_file(tmp_path / "made")
    assert library_file(tmp_path / "made") == first
    assert fast.calls == 1
    monkeypatch.setattr(build, "_processor", lambda variant: "another one")
    assert library_file(tmp_path / "made") != first
    assert fast.calls == 2


def test_threads_that_need_it_at_once_build_it_once(
    compiler: tuple[str, ...], native: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "compile_library", slow := FastCompiler(native, seconds=0.2))
    with ThreadPoolExecutor(4) as pool:
        reasons = list(pool.map(lambda _: library.why_not(), range(4)))
    assert slow.calls == 1
    assert len(set(reasons)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_a_thread_builds_it_has_its_own_attempt(no_compiler: None) -> None:
    held, done_with = threading.Event(), threading.Event()

    def hold() -> None:
        with library._lock:
            held.set()
            done_with.wait()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait()
        child = os.fork()
        if not child:
            os._exit(library.why_not() is None)
        done_with.set()
    assert succeeds(child), "the child is stuck or has failed"


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked_anew: Path) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert library.why_not() == "BERTKIT_NATIVE=0 switches it off"
    assert not in_library(save_tiny(tmp_path / "tiny"))
    assert not asked_anew.exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UnavailableError, match=r"others may write to .*open, and what is loaded .* set XDG_CACHE_HOME"):
        library_file(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(UnavailableError, match=r"another user owns .*theirs, and what is loaded"):
        library_file(folder)


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "Not a directory" in (library.why_not() or "")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def linked(path: Path) -> None:
    target = path.replace(path.with_name("elsewhere"))
    path.symlink_to(target)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    (path / "folder").mkdir(parents=True)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "one bit": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "a link": linked,
    "a pipe": piped,
    "a folder": replaced_by_a_folder,
    "open to others": lambda path: path.chmod(0o777),
    "unreadable": lambda path: path.chmod(0),
}
if hasattr(os, "geteuid") and os.geteuid() == 0:
    DAMAGE["of somebody else"] = lambda path: os.chown(path, 12345, 12345)
    del DAMAGE["unreadable"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_as_it_was_kept_is_built_again(
    compiler: tuple[str, ...], native: NativeLibrary, damage: str, monkeypatch: pytest.MonkeyPatch, asked_anew: Path
) -> None:
    monkeypatch.setattr(build, "compile_library", fast := FastCompiler(native))
    monkeypatch.setattr(build, "_test", lambda made: None)  # of a copy of a library that is in use
    DAMAGE[damage](library_file(asked_anew))
    again = library_file(asked_anew)
    assert fast.calls == 2
    assert not again.is_symlink()
    assert again.read_bytes() == native.path.read_bytes()
    assert again.stat().st_uid == os.geteuid()
    assert not again.stat().st_mode & 0o077
    assert [path for path in asked_anew.iterdir() if path.name != "elsewhere"] == [again]


def test_a_generous_umask_does_not_make_it_foreign(
    compiler: tuple[str, ...], native: NativeLibrary, monkeypatch: pytest.MonkeyPatch, asked_anew: Path
) -> None:
    monkeypatch.setattr(build, "compile_library", fast := FastCompiler(native))
    usual = os.umask(0)
    try:
        assert library_file(asked_anew) == library_file(asked_anew)
    finally:
        os.umask(usual)
    assert fast.calls == 1


def test_parents_that_anyone_may_write_to_are_refused(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(UnavailableError, match=r"others may write to .*/parent, and what is loaded from .*/parent/new"):
        private_folder(parent / "new")
    parent.chmod(0o1777)  # as /tmp: only who owns a folder there may rename it
    assert private_folder(parent / "new" / "newer") == parent / "new" / "newer"
    assert not (parent / "new").stat().st_mode & 0o077
    (tmp_path / "link").symlink_to(parent)
    parent.chmod(0o777)
    with pytest.raises(UnavailableError, match=r"others may write to .*/parent,"):
        private_folder(tmp_path / "link" / "new")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_parents_of_somebody_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(UnavailableError, match=r"another user owns .*/theirs, "):
        private_folder(tmp_path / "theirs" / "new")
    (tmp_path / "shared").mkdir(mode=0o770)
    os.chmod(tmp_path / "shared", 0o770)
    assert private_folder(tmp_path / "shared" / "new"), "of the user's own group"
    os.chown(tmp_path / "shared", -1, 12345)
    with pytest.raises(UnavailableError, match=r"others may write to .*/shared, "):
        private_folder(tmp_path / "shared" / "new")


JUNK = {
    "no library": (["echo junk > $out"], "cannot be loaded"),
    "no file": ([], "it wrote no file"),
    "one that ends the process": (["exec {compiler} -shared -fPIC -o $out {source}"], "it ended with SIG"),
}


@pytest.mark.parametrize("kind", JUNK)
def test_junk_of_a_compiler_is_not_kept(
    compiler: tuple[str, ...],
    kind: str,
    no_compiler: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    asked_anew: Path,
) -> None:
    lines, said = JUNK[kind]
    source = tmp_path / "aborts.c"
    calls = [f"int {name}(void) {{ __builtin_trap(); }}" for name in FUNCTIONS if name != "bertkit_api_version"]
    source.write_text("\n".join([*calls, f"int bertkit_api_version(void) {{ return {library.VERSION}; }}"]) + "\n")
    path = f"PATH={os.path.dirname(compiler[0])}:/usr/bin:/bin"
    find = 'while [ "$1" != -o ]; do shift; done; out=$2'
    written = [line.format(compiler=" ".join(compiler), source=source) for line in lines]
    monkeypatch.setenv("CC", compiler_that(tmp_path, path, find, *written))
    assert said in (library.why_not() or "")
    assert not [*asked_anew.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("kernels/rows.h", "float factor = 1.0f / sqrtf(", "float factor = 1.01f / sqrtf("),
        ("forward.c", "last = (int)(", "last = -1 + (int)("),
    ],
)
def test_a_library_that_computes_something_else_is_not_kept(
    compiler: tuple[str, ...], file: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As of a compiler with a fault."""
    shutil.copytree(build.FOLDER, tmp_path / "sources")
    source = tmp_path / "sources" / file
    assert right in source.read_text()
    source.write_text(source.read_text().replace(right, wrong))
    monkeypatch.setattr(build, "FOLDER", tmp_path / "sources")
    monkeypatch.setattr(build, "compilers", lambda: iter([compiler]))
    # One variant, compiled in less time.
    monkeypatch.setattr(build, "variants_here", lambda variant: {PLAIN: INSTRUCTION_SETS[PLAIN]})
    monkeypatch.setattr(build, "compile_library", partial(build.compile_library, flags=("-O0", *build.FLAGS[1:])))
    with pytest.raises(UnavailableError, match=r"fails its test: with weights in float32 its results differ by"):
        library_file(tmp_path / "made")


def test_a_build_that_was_killed_leaves_nothing_for_good(
    compiler: tuple[str, ...], native: NativeLibrary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked_anew: Path
) -> None:
    waits = compiler_that(tmp_path, f"echo $$ > {tmp_path / 'pid'}", "exec /bin/sleep 60")
    process = subprocess.Popen([sys.executable, "-c", BUILD], env={**os.environ, "CC": waits}, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate()
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert [*asked_anew.iterdir()], "control: something was left"
    monkeypatch.setattr(build, "compile_library", FastCompiler(native))
    kept = library_file(asked_anew)
    assert [*asked_anew.iterdir()] == [kept]


@pytest.mark.parametrize(("version", "said"), [(2, "has version 2, not "), (None, "cannot be loaded: .*bertkit_")])
def test_a_library_of_other_sources(compiler: tuple[str, ...], tmp_path: Path, version: int | None, said: str) -> None:
    """Found under the right name, as after a hash that no longer says all."""
    names = [] if version is None else FUNCTIONS
    (tmp_path / "other.c").write_text("\n".join(f"int {name}(void) {{ return {version}; }}" for name in names) + "\n")
    command = [*compiler, "-shared", "-fPIC", "-o", str(tmp_path / "other.so"), str(tmp_path / "other.c")]
    subprocess.run(command, check=True)
    with pytest.raises(UnavailableError, match=rf"other.so {said}.*delete it or reinstall"):
        load(tmp_path / "other.so")


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    functions: Any = None
    assert (
        str(NativeLibrary(tmp_path, functions, 0, "native", 16, True, True))
        == "512-bit vectors, bf16 and int8 products, variant native"
    )
    assert (
        str(NativeLibrary(tmp_path, functions, 0, "avx2_vnni", 8, True, False))
        == "256-bit vectors, int8 products, variant avx2_vnni"
    )
    assert str(NativeLibrary(tmp_path, functions, 1, "plain", 4, False, False)) == "128-bit vectors, variant plain"


BUILD = """
from bertkit.engine.native.library import native_library, why_not
found = native_library()
print(why_not() if found is None else found.path)
"""


@pytest.mark.campaign
@pytest.mark.slow
def test_two_processes_build_it_at_once(compiler: tuple[str, ...], asked_anew: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=200)[0].strip() for process in both]
    assert said[0] == said[1]
    assert Path(said[0]).parent == asked_anew
    assert [path.name for path in asked_anew.iterdir()] == [Path(said[0]).name], "no draft stays"
    assert load(Path(said[0])).lanes >= 4


@pytest.fixture
def shipped(native: NativeLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library as a wheel for this platform has it."""
    (tmp_path / "lib").mkdir()
    target = tmp_path / "lib" / library.shipped_name(native.path)
    shutil.copy(native.path, target)
    monkeypatch.setattr(library, "SHIPPED", tmp_path / "lib")
    return target


def test_the_library_of_the_wheel_needs_no_compiler_and_no_cache(
    no_compiler: None, shipped: Path, monkeypatch: pytest.MonkeyPatch, asked_anew: Path
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    found = library.native_library()
    assert found is not None
    assert found.path == shipped
    assert not asked_anew.exists(), "nothing is written"
    library._attempt.cache_clear()
    monkeypatch.setenv(SWITCH, "build")
    assert "no C compiler was found" in (library.why_not() or ""), "control: it is not looked at"


@pytest.mark.parametrize("damage", ["one bit", "cut", "empty", "a folder"])
def test_a_damaged_library_of_the_wheel_is_not_run_and_that_is_said_once(
    no_compiler: None, shipped: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGE[damage](shipped)
    assert "no C compiler was found" in (library.why_not() or "")
    assert library.native_library() is None
    assert capsys.readouterr().err.count("the compiled encoder of this installation cannot be used") == 1


def test_a_library_that_may_only_be_read(no_compiler: None, shipped: Path) -> None:
    """A wheel that was unpacked without permission to write or to execute."""
    shipped.chmod(0o444)
    shipped.parent.chmod(0o555)
    try:
        found = library.native_library()
    finally:
        shipped.parent.chmod(0o755)
    assert found is not None
    assert found.path == shipped


def test_a_library_of_another_version_alone(
    no_compiler: None, shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As two versions that were installed one over the other leave it; beside the right one it is not spoken of."""
    other = shipped.with_name(f"bertkit-0.0.1-{'0' * 64}.so")
    other.write_bytes(b"")
    assert library.native_library() is not None
    assert capsys.readouterr().err == ""
    library._attempt.cache_clear()
    shipped.unlink()
    assert library.native_library() is None
    assert "no C compiler was found" in (library.why_not() or "")
    said = capsys.readouterr().err
    assert said.count("the compiled encoder of this installation cannot be used") == 1
    assert f"{other} is of another version" in said


#: Puts a library, given first, into a folder from which nothing may be run, given second, and then runs the rest.
NO_EXECUTION = 'mount -t tmpfs -o noexec,mode=700 tmpfs "$2" && cp "$1" "$2" && shift 2 && exec "$@"'
#: Prints the library that is taken and what was said of it; a copy of the library, given first, is what is compiled.
LOOKS = """
import sys
from pathlib import Path
from bertkit.engine.native import build, library
compiled = Path(sys.argv[1]).read_bytes()
build.compilers = lambda: iter([("compiler",)] if sys.argv[3] != "wheel" else ())
build.compile_library = lambda compiler, target, *rest: target.write_bytes(compiled) and None
if sys.argv[3] == "wheel":
    library.SHIPPED = Path(sys.argv[2])
found = library.native_library()
print(found.path if found else library.why_not())
"""


@pytest.mark.parametrize(
    "place",
    ["wheel", pytest.param("cache", marks=pytest.mark.campaign), pytest.param("TMPDIR", marks=pytest.mark.campaign)],
)
def test_a_folder_from_which_nothing_may_be_run(native: NativeLibrary, place: str, tmp_path: Path) -> None:
    if not can_seal():
        pytest.skip("this system does not let a process have a mount of its own")
    source, folder = tmp_path / library.shipped_name(native.path), tmp_path / "noexec"
    shutil.copy(native.path, source)
    folder.mkdir()
    names = {"cache": "XDG_CACHE_HOME", "TMPDIR": "TMPDIR"}
    more = {names[place]: str(folder)} if place in names else {}
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", NO_EXECUTION, "sh", source, folder]
    done = subprocess.run(
        [*command, sys.executable, "-c", LOOKS, source, folder, place],
        env={**os.environ, **more}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    if place == "TMPDIR":
        assert Path(done.stdout.strip()).name.startswith("encoder-"), done.stdout + done.stderr
        return
    if place == "cache":
        assert "the library that it wrote fails its test" in done.stdout
        assert "cannot be loaded" in done.stdout
        return
    assert done.stderr.count("cannot be loaded") == done.stderr.count("failed to map segment") == 1, done.stderr
    assert "no C compiler was found" in done.stdout


def test_flips_and_cuts_of_the_library_are_seen(shipped: Path, no_compiler: None, asked_anew: Path) -> None:
    content, chance = shipped.read_bytes(), np.random.default_rng(0)
    assert library._shipped() is not None, "control: whole"
    for number in range(200):
        changed, place = bytearray(content), int(chance.integers(len(content)))
        changed[place] ^= 1 << int(chance.integers(8))
        shipped.unlink()  # the one that was loaded stays as it is
        shipped.write_bytes(changed[:place] if number % 2 else changed)
        assert library._shipped() is None


def test_a_variant_by_name(no_compiler: None, shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = [info.name.decode() for info in load(shipped).variants() if info.runs]
    for name in running:
        monkeypatch.setenv(VARIANT_SWITCH, name)
        library._attempt.cache_clear()
        found = library.native_library()
        assert found is not None
        assert found.name == name
    monkeypatch.setenv(VARIANT_SWITCH, "sse9")
    library._attempt.cache_clear()
    with pytest.raises(ConfigError, match=f"BERTKIT_CPU is 'sse9' in the environment; here run: {', '.join(running)}"):
        library.native_library()


@pytest.mark.campaign
def test_zig_compiles_it(tmp_path: Path) -> None:
    """The compiler that pip can install."""
    pytest.importorskip("ziglang")
    assert (
        build.compile_library((sys.executable, "-m", "ziglang", "cc"), tmp_path / "zig.so", build.variants_here())
        is None
    )
    shape = shape_of(26, 2, 40)
    weights = random_weights(shape)
    x, starts = random_rows(26, 40, 3, 17)
    found = NativeEncoder(load(tmp_path / "zig.so"), shape, native_layers(shape, weights))(x, starts, threads=2)
    assert np.abs(found - encode(shape, weights, x, starts)).max() < 1e-5
