"""Let each call of a command that changes the disk fail in turn, and look at what is left (Linux, a C compiler).

    PYTHONPATH=.. python tests/failures/sweep.py [SCENARIO ...] [--failures error kill ...] [--most 5]

The scenarios are commands (`scenarios.py`) that replace an earlier result or make a first one. For each failure, the
command runs with it at the first counted call, at the second one, and so on (of many equal calls in a row: at the
first two, one in the middle and the last), each time in a folder made anew. Afterwards the folder must hold the old
result or the new one, of a training its unfinished run; files of others are as they were; the exit status and one
sentence say what happened; and the same command makes the new result and tidies up. After a kill, a command that only
reads sees the old result or the new one.

`failing_calls.c` stands between the process and the C library, so calls of libraries in Rust and C++ count, too. The
script prints each violation, then a table, and its exit status is 1 if there is one.
"""

import argparse
import atexit
import errno
import hashlib
import importlib
import mmap
import os
import pkgutil
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]

from record import (  # noqa: E402 -- a script of its own
    ENVIRONMENT,
    as_text,
    import_libraries,
    normalizer,
    words_of,
    write_texts_of_pictures,
)

CHANGES, READS, ALLOCATIONS = 1, 2, 4  # kinds of calls; numbers as in `failing_calls.c`
COUNT, FAIL, FILL, KILL, SIGNAL = range(5)  # actions
LIMIT = 120  # seconds, of one command
OTHERS = {name: f"{name} of others\n" for name in ("mine.txt", ".hidden", "out.bak/kept.txt", ".out.note", "out2.csv")}


@dataclass(frozen=True)
class Failure:
    """What happens at a call, and the calls at which it can happen, all if there are none."""

    kinds: int
    action: int
    number: int = 0  # of the error or signal
    calls: tuple[str, ...] = ()


FAILURES = {
    "error": Failure(CHANGES, FAIL, errno.EIO),
    "full": Failure(CHANGES, FILL, errno.ENOSPC),
    "denied": Failure(CHANGES, FAIL, errno.EACCES, ("create", "mkdir", "rename", "unlink", "rmdir", "link", "chmod")),
    "kill": Failure(CHANGES, KILL),
    "interrupt": Failure(CHANGES, SIGNAL, signal.SIGINT),
    "terminate": Failure(CHANGES, SIGNAL, signal.SIGTERM),
    "unreadable": Failure(READS, FAIL, errno.EIO),
    "memory": Failure(ALLOCATIONS, FAIL, errno.ENOMEM),
}


@dataclass(frozen=True)
class Scenario:
    """A command, what was in its folder before, and what reads its result; `@` stands for the inputs.

    `continues`: what a failure leaves, such as an unfinished run, is neither the old result nor the new one, and the
    repeated command continues it. `processes`: of a group that trains together.
    """

    name: str
    command: str
    old: Sequence[str] = ()
    reader: str = ""
    continues: bool = False
    processes: int = 1


@dataclass
class Ended:
    """A command that has ended: what it left on the streams, and its counted calls."""

    status: int
    output: str
    errors: str
    calls: list[tuple[str, bool, str]] = field(default_factory=list)  # name, whether it needs space, path
    hits: int = 0


class Control:
    """The memory that `failing_calls.c` reads in all processes."""

    LAYOUT = "8l" + "512s" * 5

    def __init__(self, folder: Path) -> None:
        self.log = folder / "calls.txt"
        self.memory = mmap.mmap(os.open(os.environ["FAILING_CALLS"], os.O_RDWR), struct.calcsize(self.LAYOUT))

    def arm(self, failure: Failure, at: int, process: int, roots: Sequence[Path]) -> None:
        """Count from now on, in the roots, and let the failure happen at a call, never at call 0."""
        self.log.write_bytes(b"")
        names = [str(root).encode() for root in roots] + [b""] * (4 - len(roots)) + [str(self.log).encode()]
        values = 1, failure.kinds, failure.action if at else COUNT, at, failure.number, process, 0, 0
        self.memory[: struct.calcsize(self.LAYOUT)] = struct.pack(self.LAYOUT, *values, *names)

    def disarm(self) -> int:
        """Stop counting; returns how many calls have failed."""
        hits = struct.unpack_from(self.LAYOUT, self.memory)[7]
        struct.pack_into("l", self.memory, 0, 0)
        return int(hits)

    def calls(self) -> list[tuple[str, bool, str]]:
        """The counted calls in order."""
        lines = [line.split("\t") for line in self.log.read_text(errors="replace").splitlines()]
        lines.sort(key=lambda line: int(line[0]))
        return [(name, grows == "1", path) for _, name, grows, path in lines]


class Laboratory:
    """A scratch folder with the inputs, in which commands run in processes forked from this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = Control(folder)
        self.normalize = normalizer(folder)
        self.digests: dict[bytes, str] = {}

    def run(self, command: str, place: Path, failure: Failure | None = None, at: int = 0, processes: int = 1) -> Ended:
        """Run a command in a folder, with a failure at a call, or (0) only counting."""
        streams = [self.folder / name for name in ("output.txt", "errors.txt")]
        port = free_port() if processes > 1 else 0
        children = [os.fork()]
        if children[0] and processes > 1:
            children.append(os.fork())
        if 0 in children:
            rank = len(children) - 1
            try:
                if port:
                    group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
                    os.environ.update({name: str(value) for name, value in group.items()}, MASTER_ADDR="127.0.0.1")
                if failure and rank == 0:
                    roots = [place] if failure.kinds == CHANGES else [place, self.folder / "inputs"]
                    self.control.arm(failure, at, os.getpid(), roots)
                self._be_command(command, place, streams)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])]
        for child in children[1:]:  # as a launcher ends the others
            if statuses[0]:
                os.kill(child, signal.SIGTERM)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        hits = self.control.disarm() if failure else 0
        texts = [stream.read_text(errors="replace") for stream in streams]
        if port:  # without torch's log
            texts[1] = "".join(line for line in texts[1].splitlines(True) if line.startswith(("mybert ", "Traceback")))
        return Ended(statuses[0], *texts, self.control.calls() if failure else [], hits)

    def _be_command(self, command: str, place: Path, streams: Sequence[Path]) -> None:
        """In the forked process: run the command, and end."""
        signal.alarm(LIMIT)
        os.chdir(place)
        os.environ["TMPDIR"] = str(place.parent)
        tempfile.tempdir = None
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, stream in enumerate(streams, 1):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
        from mybert import __main__

        sys.argv = ["mybert", *words_of(command)]
        status = 1
        try:
            status = __main__.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()  # as at the end of Python, without its other work
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)

    def contents(self, place: Path) -> dict[str, str]:
        """Digests of results by name, without times; bookkeeping is left out."""
        from mybert.files.moves import is_bookkeeping

        found = {}
        for path in sorted(place.rglob("*")):
            name = path.relative_to(place)
            if (
                path.is_file()
                and str(name) not in OTHERS
                and not any(is_bookkeeping(Path(part)) for part in name.parts)
            ):
                content = path.read_bytes()
                key = hashlib.sha256(path.suffix.encode() + content).digest()
                if key not in self.digests:
                    text = content.hex()
                    if path.suffix != ".safetensors":
                        with suppress(ValueError):  # a file of an unfinished run that is not whole
                            text = self.normalize(as_text(path, content))
                    self.digests[key] = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
                found[str(name)] = self.digests[key]
        return found


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def make(place: Path, template: Path | None) -> None:
    """Make a folder anew, as the template, with files of others."""
    shutil.rmtree(place, ignore_errors=True)
    if template:
        shutil.copytree(template, place, symlinks=True)
    for name, text in OTHERS.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def shortened(text: str) -> str:
    return text if len(text) < 400 else f"{text[:200]} ... {text[-200:]}"


def changed_others(place: Path) -> list[str]:
    return [
        name for name, text in OTHERS.items() if not (place / name).is_file() or (place / name).read_text() != text
    ]


def bookkeeping_of(place: Path) -> list[str]:
    """Hidden files that a command has left."""
    from mybert.files.moves import is_bookkeeping

    return [str(path.relative_to(place)) for path in sorted(place.rglob("*")) if is_bookkeeping(path)]


def points(calls: Sequence[tuple[str, bool, str]], failure: Failure) -> list[int]:
    """The numbers of the calls at which a failure happens; of equal calls in a row four."""
    chosen, start = [], 0
    while start < len(calls):
        end = start
        while end + 1 < len(calls) and calls[end + 1] == calls[start]:
            end += 1
        chosen += sorted({start, min(start + 1, end), (start + end) // 2, end})
        start = end + 1
    return [
        at + 1
        for at in chosen
        if (calls[at][1] or failure.action != FILL) and (not failure.calls or calls[at][0] in failure.calls)
    ]


class Sweep:
    """All failures of a scenario."""

    def __init__(self, laboratory: Laboratory, scenario: Scenario) -> None:
        self.laboratory, self.scenario = laboratory, scenario
        self.place = laboratory.folder / scenario.name
        self.template = laboratory.folder / f"{scenario.name}.old" if scenario.old else None
        if self.template:
            make(self.template, None)
            for command in scenario.old:
                self._run_well(command, self.template)
        self.points: Counter[str] = Counter()
        self.violations: list[str] = []
        self.mixed = 0
        make(self.place, self.template)
        self.old, self.old_read = laboratory.contents(self.place), self._read()
        self._run_well(scenario.command, self.place)
        self.new, self.new_read = laboratory.contents(self.place), self._read()
        make(self.place, self.template)
        self._run_well(scenario.command, self.place)
        again = laboratory.contents(self.place)
        self.variable = {name for name in {*again, *self.new} if again.get(name) != self.new.get(name)}
        if self.new == self.old:
            raise RuntimeError(f"{scenario.name}: the command changes nothing")

    def _run_well(self, command: str, place: Path) -> None:
        ended = self.laboratory.run(command, place, processes=self.scenario.processes)
        if ended.status:
            raise RuntimeError(f"{self.scenario.name}: mybert {command} ended with {ended.status}: {ended.errors}")

    def _read(self) -> str:
        if not self.scenario.reader:
            return ""
        ended = self.laboratory.run(self.scenario.reader, self.place)
        return ended.output if ended.status == 0 else f"status {ended.status}"

    def state(self) -> str:
        """Whether the folder holds the old result, the new one, or parts of both."""
        found = self.laboratory.contents(self.place)
        for name, result in (("new", self.new), ("old", self.old)):
            if all(found.get(key) == result.get(key) for key in {*found, *result} - self.variable):
                return name
        return "mixed"

    def differing(self, result: dict[str, str]) -> list[str]:
        found = self.laboratory.contents(self.place)
        return sorted(key for key in {*found, *result} - self.variable if found.get(key) != result.get(key))

    def fail(self, name: str, most: float) -> None:
        """Let a failure happen at the calls, in turn."""
        failure, scenario = FAILURES[name], self.scenario
        make(self.place, self.template)
        calls = self.laboratory.run(scenario.command, self.place, failure, 0, scenario.processes).calls
        chosen = points(calls, failure)
        if len(chosen) > most:
            chosen = [chosen[int(index * len(chosen) / most)] for index in range(int(most))]
        for at in chosen:
            make(self.place, self.template)
            ended = self.laboratory.run(scenario.command, self.place, failure, at, scenario.processes)
            if not ended.hits:
                continue  # fewer calls this time
            self.points[name] += 1
            where = f"{scenario.name}, {name} at call {at} ({calls[at - 1][0]} {self._short(calls[at - 1][2])})"
            for violation in self._violations(name, ended):
                self.violations.append(f"{where}: {violation}")
                print(self.violations[-1], flush=True)

    def _short(self, path: str) -> str:
        return path.replace(f"{self.laboratory.folder}/", "")

    def _violations(self, name: str, ended: Ended) -> Iterator[str]:
        status, errors = ended.status, ended.errors.replace(f"{self.laboratory.folder}/", "").strip()
        state, failure = self.state(), FAILURES[name]
        said = f"status {status}, {state}; {shortened(errors)}"
        allowed = {KILL: {-signal.SIGKILL}, SIGNAL: {0, 130}}.get(failure.action, {0, 2})
        if failure.kinds == ALLOCATIONS:
            is_panic = "PanicException" in errors
            allowed |= {-signal.SIGABRT, -signal.SIGSEGV, *[1] * is_panic}  # how libraries in Rust and C++ end
        if status not in allowed:
            yield f"ended with {said}"
        if "Traceback" in errors and status in (0, 2, 130):
            yield f"a traceback: {said}"
        elif status == 2 and not 1 <= len(errors.splitlines()) <= self.scenario.processes:
            yield f"{len(errors.splitlines())} lines of errors: {said}"
        # Without memory for its blocks, linear algebra takes other paths, which round differently.
        may_differ = failure.kinds == ALLOCATIONS or "could not be deleted" in ended.output
        if status == 0 and state != "new" and not may_differ:
            yield f"succeeded with another result, {self.differing(self.new)}"
        if status in (2, 130) and state == "new" and failure.kinds == CHANGES and not self.scenario.continues:
            yield f"failed with the new result: {said}"  # what it reads of the result afterwards may fail
        if state == "mixed" and not self.scenario.continues:
            self.mixed += 1
            if failure.action != KILL:
                both = self.differing(self.old), self.differing(self.new)
                yield f"neither the old result nor the new one, which differ in {both}: {said}"
        if others := changed_others(self.place):
            yield f"files of others changed: {others}"
        if failure.action == KILL and self.scenario.reader and self._read() not in (self.old_read, self.new_read):
            yield f"a reader sees neither the old result nor the new one: {self._read()}"
        yield from self._violations_of_repeat(state)

    def _tells_time(self, name: str) -> bool:
        """Whether a file tells how long a training took, of which a continued run knows only a part."""
        return self.scenario.continues and Path(name).name in ("README.md", "trainer_state.json", "ablation.json")

    def _violations_of_repeat(self, state: str) -> Iterator[str]:
        again = self.laboratory.run(self.scenario.command, self.place, processes=self.scenario.processes)
        errors = again.errors.replace(f"{self.laboratory.folder}/", "").strip()
        is_there = again.status == 2 and state in ("new", "mixed") and "exist" in errors
        if again.status and not is_there:
            yield f"repeated: status {again.status}, {shortened(errors)}"
        elif differing := [name for name in self.differing(self.new) if not self._tells_time(name)]:
            yield f"repeated: another result, {differing}"
        if "Traceback" in errors:
            yield f"repeated: a traceback: {shortened(errors)}"
        if left := bookkeeping_of(self.place):
            yield f"repeated: left behind {left}"
        if others := changed_others(self.place):
            yield f"repeated: files of others changed: {others}"


def preloading_environment(folder: Path) -> dict[str, str]:
    """Compile `failing_calls.c` in a folder; the environment of a process that loads it."""
    library, control = folder / "failing_calls.so", folder / "control"
    compile_library = "cc", "-shared", "-fPIC", "-O2", "-o", library, HERE / "failing_calls.c", "-ldl"
    subprocess.run(compile_library, check=True)
    control.write_bytes(bytes(struct.calcsize(Control.LAYOUT)))
    settings = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "TQDM_DISABLE": "1"}
    settings |= {"LD_PRELOAD": str(library), "FAILING_CALLS": str(control), "MPLCONFIGDIR": str(folder)}
    return os.environ | ENVIRONMENT | settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help="all if none is named")
    parser.add_argument("--failures", nargs="+", choices=FAILURES, default=list(FAILURES))
    parser.add_argument("--most", type=float, default=float("inf"), help="calls of a scenario with one failure")
    parser.add_argument("--calls", action="store_true", help="only list the calls that change the disk")
    arguments = parser.parse_args()
    from scenarios import SCENARIOS

    chosen = [each for each in SCENARIOS if not arguments.scenarios or each.name in arguments.scenarios]
    if unknown := set(arguments.scenarios) - {each.name for each in SCENARIOS}:
        parser.error(f"no scenarios: {', '.join(unknown)}; there are {', '.join(each.name for each in SCENARIOS)}")
    if "FAILING_CALLS" not in os.environ:  # start again, in a process that has loaded the library
        with tempfile.TemporaryDirectory(prefix="failing_calls_") as folder:
            environment = preloading_environment(Path(folder))
            return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode
    import_libraries()
    import_package()
    write_texts_of_pictures()
    violations = 0
    scratch = Path(tempfile.mkdtemp(prefix="failures_"))  # no TemporaryDirectory: each forked process would delete it
    try:
        laboratory = Laboratory(scratch)
        (laboratory.folder / "inputs").mkdir()
        write_inputs_in_process(laboratory.folder / "inputs")
        print("| scenario | points | of which | mixed until the next command | violations | seconds |")
        print("|---|---:|---|---:|---:|---:|", flush=True)
        for scenario in chosen:
            start = time.monotonic()
            try:
                sweep = Sweep(laboratory, scenario)
            except RuntimeError as error:
                print(error, flush=True)
                violations += 1
                continue
            if arguments.calls:
                make(sweep.place, sweep.template)
                ended = laboratory.run(scenario.command, sweep.place, FAILURES["error"], 0, scenario.processes)
                print(*(f"{at} {call[0]} {sweep._short(call[2])}" for at, call in enumerate(ended.calls, 1)), sep="\n")
                continue
            for name in arguments.failures:
                sweep.fail(name, arguments.most)
            violations += len(sweep.violations)
            counts = ", ".join(f"{count} {name}" for name, count in sweep.points.items())
            cells = scenario.name, sweep.points.total(), counts, sweep.mixed, len(sweep.violations)
            print(*("", *cells, f"{time.monotonic() - start:.0f}", ""), sep=" | ", flush=True)
            for place in (sweep.place, sweep.template):
                if place:
                    shutil.rmtree(place)
    finally:
        shutil.rmtree(scratch)
    return int(violations > 0)


def import_package() -> None:
    """Import all of mybert, so that a forked process need not, and leave out what torch does at the end of each."""
    from torch._dynamo.utils import dump_compile_times

    import mybert

    atexit.unregister(dump_compile_times)

    others = ("benchmarks", "docs", "examples", "setup", "skills", "tests")
    for module in pkgutil.walk_packages(mybert.__path__, "mybert."):
        if module.name.split(".")[1] not in others:
            importlib.import_module(module.name)


def write_inputs_in_process(folder: Path) -> None:
    """Write the inputs of the golden records in a process of its own, as nothing here may have run a model."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            from inputs import write_inputs

            write_inputs()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("The inputs could not be written.")


if __name__ == "__main__":
    sys.exit(main())
