"""What reads files of others: seeds, earlier findings and mutations are read, or are errors for users."""

import importlib.util
import random
import time

import pytest
import run
import targets
from mutation import mutated
from targets import INPUTS, TARGETS, Finding, Target, check, inputs_of, prepared

SECONDS = 7  # of mutations of each target


@pytest.fixture
def folder_for(tmp_path):
    """(Target's name) -> its folder, whose name an error message has to contain."""
    return lambda name: prepared(name, tmp_path / f"fuzzed_{name}")


@pytest.mark.parametrize("name", TARGETS)
def test_check_of_seeds_and_earlier_findings_finds_nothing(name, folder_for):
    folder = folder_for(name)
    outcomes = {path.name: check(name, folder, path.read_bytes()) for path in inputs_of(name)}
    seeds = [messages for file, messages in outcomes.items() if not file.startswith("found_")]
    assert min(map(len, seeds)) < len(TARGETS[name].readers), "no seed is read"


def test_inputs_are_those_of_targets():
    assert {path.name for path in INPUTS.iterdir()} == TARGETS.keys()


def spin(file):
    while True:
        pass


def fail(error):
    def read(file):
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (spin, "TooSlow: more than 0.1 seconds"),
        (lambda file: bytearray(2 * targets.MEMORY), "MemoryError"),
        (lambda file: {}["a"], "KeyError: 'a'"),
        (fail(ValueError("bad value")), "ValueError without the file's name: bad value"),
        (fail(UnicodeDecodeError("utf-8", b"a", 0, 1, "bad")), "UnicodeDecodeError without the file's name"),
    ],
)
def test_check_of_what_no_input_may_do_raises_a_finding(read, message, folder_for, monkeypatch):
    monkeypatch.setattr(targets, "SECONDS", 0.1)
    monkeypatch.setitem(TARGETS, "bad", Target("file", (read,)))
    with pytest.raises(Finding, match=f"^bad: {message}"):
        check("bad", folder_for("bad"), b"")


def test_mutated_of_a_seed_is_repeatable_and_changes_it():
    seeds = [path.read_bytes() for path in inputs_of("config")]
    mutants = [[mutated(random.Random(seed), seeds[0], seeds, [b"null"]) for seed in range(50)] for _ in range(2)]
    assert mutants[0] == mutants[1] and len(set(mutants[0])) > 40


def test_main_without_atheris_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(run.sys.modules, "atheris", None)
    assert run.main(["--corpus", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "This needs atheris, which runs on Linux: pip install atheris.\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_check_of_mutated_inputs_finds_nothing(name, folder_for, tmp_path):
    """Guided by coverage, if atheris is installed; else random, with a seed."""
    if importlib.util.find_spec("atheris"):
        assert run.main([name, "--seconds", str(SECONDS), "--corpus", str(tmp_path / "corpus")]) == 0
        return
    folder, rng, target = folder_for(name), random.Random(0), TARGETS[name]
    seeds = [path.read_bytes() for path in inputs_of(name)]
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        content = mutated(rng, rng.choice(seeds), seeds, target.words)[: run.MAX_LENGTH]
        try:
            check(name, folder, content)
        except Finding as finding:
            pytest.fail(f"{finding}: {content!r}")


REPEATED = [
    name for name in TARGETS if name not in ("tensorflow_data", "parquet", "spreadsheet", "archive", "compressed")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", REPEATED)
def test_check_of_seeds_with_a_part_repeated_to_300_kilobytes_finds_nothing(name, folder_for):
    """Time and memory follow from the size."""
    folder = folder_for(name)
    for path in inputs_of(name):
        content = path.read_bytes()
        for begin in range(0, len(content), max(1, len(content) // 3)):
            part = content[begin : begin + 40]
            repeated = content[:begin] + part * (300_000 // len(part)) + content[begin:]
            check(name, folder, repeated)
