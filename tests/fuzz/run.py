"""Coverage-guided fuzzing of what reads files of others, see `targets.py`; needs atheris (`pip install atheris`).

    PYTHONPATH=.. python tests/fuzz/run.py --seconds 600 --corpus FOLDER [TARGET ...]

Each target runs in a process of its own, from its seeds and what FOLDER has of earlier runs. The inputs that were
findings are written to FOLDER/found/TARGET, one for each cause, and the exit status is 1; the table has the number of
inputs, and of edges that were covered.
"""

import argparse
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INSTRUMENTED = ["mybert", "yaml", "openpyxl", "csv", "json", "zipfile", "tarfile"]
MAX_LENGTH = 1 << 15  # bytes of an input
NATIVE_LIMIT = 60  # seconds, which also hold for native code


def fuzz(name: str, corpus: Path, seconds: int) -> None:
    """Fuzz a target in this process, which ends with it."""
    import atheris

    logging.getLogger().addHandler(logging.NullHandler())  # warnings of every input would fill the log
    with atheris.instrument_imports(include=INSTRUMENTED):
        import targets
    from mutation import mutated

    target = targets.TARGETS[name]
    seeds = [path.read_bytes() for path in targets.inputs_of(name)]
    own, found = corpus / name, corpus / "found" / name
    own.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    causes = set[str]()

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return atheris.Mutate(data, max_size)
        return mutated(rng, data, seeds, target.words)[:max_size]

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        folder = targets.prepared(name, Path(scratch) / f"fuzzed_{name}")

        def read(content: bytes) -> None:
            try:
                targets.check(name, folder, content)
            except targets.Finding as finding:
                if (cause := targets.cause_of(finding)) not in causes:
                    causes.add(cause)
                    print(f"FINDING {cause}: {finding}", flush=True)
                    file = re.sub(r"\W+", "_", cause)[:80]
                    (found / f"found_{file}").write_bytes(content)

        options = [f"-max_total_time={seconds}", f"-max_len={MAX_LENGTH}", f"-timeout={NATIVE_LIMIT}"]
        options += ["-rss_limit_mb=8192", f"-artifact_prefix={found}/", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(own), str(targets.INPUTS / name)], read, custom_mutator=mutate)
        atheris.Fuzz()


def main(words: list[str] | None = None) -> int:
    """Fuzz the targets, each in a process, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("This needs atheris, which runs on Linux: pip install atheris.", file=sys.stderr)
        return 2
    sys.path.insert(0, str(HERE))
    if arguments.here:
        fuzz(arguments.targets[0], arguments.corpus, arguments.seconds)
    arguments.corpus.mkdir(parents=True, exist_ok=True)
    names = arguments.targets or sorted(path.name for path in (HERE / "inputs").iterdir())
    failed = False
    print("| target | inputs | edges | found |\n|---|---:|---:|---:|", flush=True)
    for name in names:
        command = [sys.executable, __file__, name, "--here", "--corpus", arguments.corpus]
        command += ["--seconds", str(arguments.seconds)]
        environment: Any = os.environ | {
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }
        done = subprocess.run(list(map(str, command)), capture_output=True, env=environment)
        log = (done.stdout + done.stderr).decode(errors="replace")
        (arguments.corpus / f"{name}.log").write_text(log)
        found = list((arguments.corpus / "found" / name).glob("*"))
        failed |= bool(found) or done.returncode != 0
        inputs = re.findall(r"number_of_executed_units: (\d+)", log) or re.findall(r"^#(\d+)", log, re.MULTILINE)
        edges = re.findall(r"cov: (\d+)", log)
        print("|", " | ".join([name, *inputs[-1:], *edges[-1:], str(len(found))]), "|", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
