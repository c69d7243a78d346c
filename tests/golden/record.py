"""Record what many calls of mybert give, and compare two such records byte by byte.

    PYTHONPATH=PARENT_OF_A_CHECKOUT python tests/golden/record.py BEFORE
    PYTHONPATH=PARENT_OF_ANOTHER python tests/golden/record.py AFTER
    python tests/golden/record.py compare BEFORE AFTER
    python tests/golden/record.py losses AFTER > tests/golden/losses.json  # after a wanted change of random draws

The calls are in `calls.py`. Each step of a call runs in a process of its own, forked from one that has imported the
libraries, with one thread and fixed seeds. A call's folder in the record holds its exit statuses and output
(`log.txt`), loss and batch of every training step (`training.jsonl`) and the files that it wrote (`files.txt`,
`files/`). Text is recorded after `NORMALIZATIONS`. On one machine two records of the same code are equal.
"""

import argparse
import difflib
import fnmatch
import gc
import hashlib
import inspect
import io
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "80"}
ENVIRONMENT |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "agg"}
# What a model learns from: equal on all machines.
EXAMPLES = ("input_ids", "labels", "next_sentence_label", "start_positions", "end_positions")
FULL_BATCHES = 3  # of each training; later batches are recorded as digests
LIMIT = 300  # seconds, of one step
MAX_LINES = 20  # of a file's difference, unless `compare` is given --all

# Text that differs between two runs of the same code, and its replacement.
NORMALIZATIONS = [
    (r'"(\w*(?:runtime|_per_second|seconds))": [-+.e\d]+', r'"\1": TIME'),
    (r'"modified": \d+', '"modified": TIME'),
    (r'"trainer_state.json": \d+', '"trainer_state.json": SIZE'),  # which holds times
    (r"\b[\d.]+ s\b", "TIME s"),
    (r"[\d.,]+ (\w+/s|texts a second)\b", r"TIME \1"),
    (r"\d\d:\d\d<\S+, +\S+?(?=\])", "TIME"),  # of a progress bar
]


@dataclass(frozen=True)
class Call:
    """Steps that run one after another in one folder, next to `inputs`.

    A step is a command line of mybert without its first word, in which `@` means `../inputs/`, or a function. `stdin`
    is the input of the commands. `pictures`: matplotlib draws, instead of writing the texts of a figure.
    """

    name: str
    steps: Sequence[str | Callable[[], Any]]
    stdin: str = ""
    pictures: bool = False


# Recording


def record(out: Path, patterns: Sequence[str], keep: bool) -> None:
    """Run the calls whose names match a pattern, and write a folder for each."""
    os.environ.update(ENVIRONMENT)
    from calls import CALLS
    from inputs import write_inputs

    import_libraries()
    calls = [call for call in CALLS if any(fnmatch.fnmatch(call.name, pattern) for pattern in patterns)]
    if not calls:
        raise SystemExit(f"No call is named {' or '.join(patterns)}. There are: {', '.join(c.name for c in CALLS)}.")
    work = Path(tempfile.mkdtemp(prefix="golden_"))
    out.mkdir(parents=True, exist_ok=True)
    (work / "inputs").mkdir()
    inputs = Call("inputs", [write_inputs])
    for call in (inputs, *calls):
        target = out / call.name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        folder = work / call.name
        folder.mkdir(exist_ok=True)
        statuses, seconds = zip(*(run_step(call, step, folder, target) for step in call.steps), strict=True)
        if call is inputs and any(statuses):
            raise SystemExit((target / "log.txt").read_text())
        normalize = normalizer(work)
        for file in target.iterdir():
            file.write_text(normalize(file.read_text(encoding="utf-8", errors="backslashreplace")), encoding="utf-8")
        collect(folder, target, normalize)
        print(f"{sum(seconds):6.1f} s  {call.name} {' '.join(map(str, statuses))}", flush=True)
    if keep:
        print(f"The files of the calls are in {work}.")
    else:
        shutil.rmtree(work)


def import_libraries() -> None:
    """Import what the calls need, so that a forked process need not."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import accelerate
    import datasets
    import sklearn.metrics
    import transformers.pipelines

    import mybert

    del accelerate, datasets, sklearn, transformers
    public_values()
    print(f"Recording {Path(mybert.__file__).parent}", flush=True)
    warnings.resetwarnings()
    gc.collect()
    gc.freeze()


def public_values() -> dict[str, Any]:
    """The public names of the package and of its subpackages, and their values, which loads them."""
    import mybert

    modules = {"mybert": mybert}
    modules |= {f"mybert.{name}": value for name in dir(mybert) if inspect.ismodule(value := getattr(mybert, name))}
    return {
        f"{path}.{name}": getattr(module, name)
        for path, module in modules.items()
        for name in sorted(getattr(module, "__all__", ()))
    }


def run_step(call: Call, step: str | Callable[[], Any], folder: Path, target: Path) -> tuple[int, float]:
    """Run a step in a forked process, and append command and output to `log.txt`: exit status, seconds of CPU."""
    streams = [folder.parent / name for name in ("stdin", "stdout", "stderr")]
    streams[0].write_text(call.stdin, encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            signal.alarm(LIMIT)
            os.chdir(folder)
            for number, file in enumerate(streams):
                os.dup2(os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            status = run_here(call, step, target)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, wait_status, usage = os.wait4(process, 0)
    status = os.waitstatus_to_exitcode(wait_status)
    shown = f"mybert {step}" if isinstance(step, str) else step.__name__
    with (target / "log.txt").open("a", encoding="utf-8") as log:
        log.write(f"$ {shown}\nstatus {status}\n")
        for name, file in zip(("output", "errors"), streams[1:], strict=True):
            if text := file.read_text(encoding="utf-8", errors="backslashreplace"):
                log.write(f"{name}:\n{text}\n")
    return status, usage.ru_utime + usage.ru_stime


def run_here(call: Call, step: str | Callable[[], Any], target: Path) -> int:
    """Run a step in this process, in the current folder; returns its exit status."""
    import numpy as np
    import torch

    from mybert import cli

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    if not call.pictures:
        write_texts_of_pictures()
    with training_recorded(target):
        if isinstance(step, str):
            return cli.main(words_of(step))
        return step() or 0


def words_of(command: str) -> list[str]:
    """The words of a command line, as the shell gives them to mybert."""
    return [word.replace("@", "../inputs/") for word in shlex.split(command)]


def write_texts_of_pictures() -> None:
    """Let figures be saved as their texts: drawing takes longer than the rest of a short run."""
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    def save(figure: Any, file: Any, **options: Any) -> None:
        Path(file).write_text("\n".join(text.get_text() for text in figure.findobj(Text)), encoding="utf-8")

    Figure.savefig = save


@contextmanager
def training_recorded(target: Path) -> Iterator[None]:
    """Append loss and batch of every training step to `training.jsonl`, and write the arguments of every `Trainer`."""
    import torch
    from transformers import Trainer, TrainingArguments

    run_step, trainers = Trainer.training_step, []

    def record_step(trainer: Any, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if trainer not in trainers:
            trainers.append(trainer)
            values = {field.name: getattr(trainer.args, field.name) for field in fields(TrainingArguments)}
            with (target / "training_arguments.txt").open("a", encoding="utf-8") as file:
                file.write("".join(f"{name} = {value!r}\n" for name, value in values.items()) + "\n")
        batch = {name: value.tolist() if torch.is_tensor(value) else value for name, value in inputs.items()}
        loss = run_step(trainer, model, inputs, *args, **kwargs)
        step = trainer.state.global_step + 1
        line = {"training": trainers.index(trainer), "step": step, "loss": float(loss)}
        line["examples"] = digest_of(examples_of(batch))
        line["batch"] = batch if step <= FULL_BATCHES else digest_of(batch)
        with (target / "training.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=repr) + "\n")
        return loss

    Trainer.training_step = record_step
    try:
        yield
    finally:
        Trainer.training_step = run_step


def normalizer(work: Path) -> Callable[[str], str]:
    """A function that replaces paths and whatever `NORMALIZATIONS` names."""
    import mybert

    paths = [(str(work), "WORK"), (str(Path(mybert.__file__).parent), "PACKAGE"), (work.name, "WORK")]
    patterns = [(re.compile(pattern, re.MULTILINE), replacement) for pattern, replacement in NORMALIZATIONS]

    def normalize(text: str) -> str:
        for path, name in paths:
            text = text.replace(path, name)
        for pattern, replacement in patterns:
            text = pattern.sub(replacement, text)
        return text

    return normalize


def collect(folder: Path, target: Path, normalize: Callable[[str], str]) -> None:
    """Copy what a call wrote: text normalized, tensors as they are, of other files a digest."""
    names = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            names.append(f"{name}/")
            continue
        content = path.read_bytes()
        copy = target / "files" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            copy.write_bytes(with_sorted_metadata(content))
        else:
            text = as_text(path, content)
            copy.write_text(normalize(text), encoding="utf-8")
        names.append(name)
    (target / "files.txt").write_text(normalize("".join(f"{name}\n" for name in names)))


def with_sorted_metadata(content: bytes) -> bytes:
    """A safetensors file whose metadata, which have no order, are sorted."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    return len(text).to_bytes(8, "little") + text + content[end:]


def as_text(path: Path, content: bytes) -> str:
    """A file's content as text, of one that is none its digests."""
    if path.suffix in (".pt", ".pth", ".bin") and zipfile.is_zipfile(io.BytesIO(content)):
        import torch

        try:
            return "".join(f"{line}\n" for line in values_of(torch.load(path, weights_only=False)))
        except (AttributeError, ModuleNotFoundError) as error:  # of a class that an earlier version had
            return f"{error}\n"
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name for name in archive.namelist() if name != "docProps/core.xml"]  # times of a spreadsheet
            return "".join(f"{name} {digest(archive.read(name))}\n" for name in names)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"{len(content)} bytes, {digest(content)}\n"
    if path.suffix == ".json" and text.count("\n") < 2:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
    return text


def values_of(value: Any, name: str = "") -> Iterator[str]:
    """The values within a pickled object, one a line; of tensors and arrays digests."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from values_of(part, f"{name}.{key}")
    elif isinstance(value, (list, tuple)) and len(value) < 100:
        for index, part in enumerate(value):
            yield from values_of(part, f"{name}.{index}")
    elif hasattr(value, "numpy"):
        yield f"{name} {tuple(value.shape)} {value.dtype} {digest(value.numpy().tobytes())}"
    elif hasattr(value, "tobytes"):
        yield f"{name} {value.shape} {value.dtype} {digest(value.tobytes())}"
    elif hasattr(value, "to_dict"):  # settings, whose class may have another name
        yield from values_of(value.to_dict(), name)
    else:
        text = repr(value)
        yield f"{name} {text if len(text) < 200 else digest(text.encode())}"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def digest_of(value: Any) -> str:
    return digest(json.dumps(value, default=repr).encode())


def examples_of(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: batch[name] for name in EXAMPLES if name in batch}


def training_summary(target: Path) -> dict[str, Any]:
    """Loss and digest of the examples of every training step of a recorded call, and the examples of the first."""
    lines = [json.loads(line) for line in (target / "training.jsonl").read_text().splitlines()]
    return {
        "losses": [float(f"{line['loss']:.7g}") for line in lines],
        "examples": [line["examples"] for line in lines],
        **examples_of(lines[0]["batch"]),
    }


def print_losses(out: Path) -> None:
    """Print what `losses.json` holds, from a record of the calls `steps_*`."""
    lines = [
        f'"{target.name}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in training_summary(target).items())
        + "\n}"
        for target in sorted(out.glob("steps_*"))
    ]
    print("{\n" + ",\n".join(lines) + "\n}")


# Comparison


def compare(before: Path, after: Path, patterns: Sequence[str], rtol: float, show_all: bool) -> int:
    """Print the differences by call and file; returns the number of files that differ."""
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir() if path.is_dir()})
    names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    count = 0
    for name in names:
        files = [
            {str(path.relative_to(folder / name)) for path in (folder / name).rglob("*") if path.is_file()}
            for folder in (before, after)
        ]
        if not files[0] or not files[1]:
            count += 1
            print(f"{name}: only in {before if files[0] else after}")
            continue
        for file in sorted(files[0] | files[1]):
            if file not in files[0] or file not in files[1]:
                lines = [f"only in {before if file in files[0] else after}"]
            else:
                lines = differences(before / name / file, after / name / file, rtol)
            if lines:
                count += 1
                shown = lines if show_all else lines[:MAX_LINES]
                rest = [f"... {len(lines) - len(shown)} more lines"] if len(lines) > len(shown) else []
                print("\n".join([f"{name}: {file}", *(f"    {line}" for line in (*shown, *rest))]))
    print(f"{len(names)} calls, {count} {'difference' if count == 1 else 'differences'}")
    return count


def differences(before: Path, after: Path, rtol: float) -> list[str]:
    """Lines that show how a file differs, none if it does not, or by no more than the relative tolerance."""
    contents = before.read_bytes(), after.read_bytes()
    if contents[0] == contents[1]:
        return []
    if before.suffix == ".safetensors":
        return different_tensors(before, after, rtol)
    texts = [content.decode().splitlines() for content in contents]
    if rtol and len(texts[0]) == len(texts[1]) and all(map(_is_near, *texts, [rtol] * len(texts[0]))):
        return []
    lines = []
    for kind, *span in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if kind != "equal":
            old, new = texts[0][span[0] : span[1]], texts[1][span[2] : span[3]]
            starts = [_common_start(*pair) for pair in zip(old, new, strict=False)] if len(old) == len(new) else []
            for sign, part in (("-", old), ("+", new)):
                lines += [sign + _excerpt(line, start) for line, start in zip_longest(part, starts, fillvalue=0)]
    return lines or ["ends of lines differ"]


_FLOAT = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")


def _is_near(before: str, after: str, rtol: float) -> bool:
    if _FLOAT.sub("", before) != _FLOAT.sub("", after):
        return False
    pairs = zip(_FLOAT.findall(before), _FLOAT.findall(after), strict=True)
    return all(math.isclose(float(one), float(other), rel_tol=rtol) for one, other in pairs)


def _common_start(before: str, after: str) -> int:
    return next((index for index, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)


def _excerpt(line: str, start: int, width: int = 160) -> str:
    """The part of a long line in which it differs first."""
    if len(line) <= width:
        return line
    start = max(0, start - width // 2)
    return f"{'...' * (start > 0)}{line[start : start + width]}{'...' * (start + width < len(line))}"


def different_tensors(before: Path, after: Path, rtol: float) -> list[str]:
    import torch
    from safetensors import safe_open

    with safe_open(before, "pt") as one, safe_open(after, "pt") as other:
        names = sorted({*one.keys(), *other.keys()})
        lines = [] if one.metadata() == other.metadata() else [f"metadata: {one.metadata()} | {other.metadata()}"]
        for name in names:
            if name not in one.keys() or name not in other.keys():  # noqa: SIM118  # no mapping
                lines.append(f"{name}: only in {before if name in one.keys() else after}")  # noqa: SIM118
                continue
            tensors = one.get_tensor(name), other.get_tensor(name)
            if tensors[0].shape != tensors[1].shape or tensors[0].dtype != tensors[1].dtype:
                lines.append(f"{name}: " + " | ".join(f"{tuple(t.shape)} {t.dtype}" for t in tensors))
            elif not torch.equal(*tensors):
                distance = (tensors[0].double() - tensors[1].double()).abs().max().item()
                largest = tensors[0].double().abs().max().item()
                if not rtol or not distance <= rtol * largest:
                    lines.append(f"{name}: differs by at most {distance:.3g}, largest value {largest:.3g}")
    return lines or ([] if rtol else ["order of the tensors"])


def main() -> int:
    """Record, compare two records, or print the losses of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="PATTERN", help="names of calls, such as pretrain*"
    )
    if sys.argv[1:2] == ["compare"]:
        parser.add_argument("before", type=Path)
        parser.add_argument("after", type=Path)
        parser.add_argument("--rtol", type=float, default=0.0, help="relative tolerance of floats (default: bytes)")
        parser.add_argument("--all", action="store_true", help=f"print more than {MAX_LINES} lines of a difference")
        given = parser.parse_args(sys.argv[2:])
        return int(compare(given.before, given.after, given.only, given.rtol, given.all) > 0)
    parser.add_argument("out", type=Path, help="folder of the record")
    if sys.argv[1:2] == ["losses"]:
        print_losses(parser.parse_args(sys.argv[2:]).out)
        return 0
    parser.add_argument("--keep", action="store_true", help="keep the folders in which the calls ran")
    given = parser.parse_args()
    record(given.out.resolve(), given.only, given.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
