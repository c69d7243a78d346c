"""`record.py compare` reports what differs, and nothing else."""

import shutil

import pytest
import torch
from record import NORMALIZATIONS, compare, normalizer, with_sorted_metadata
from safetensors.torch import load_file, save_file


@pytest.fixture
def records(tmp_path):
    """Two equal records of one call."""
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "call" / "files").mkdir(parents=True)
    (before / "call" / "log.txt").write_text("status 0\nloss 0.5123\n")
    save_file({"weight": torch.arange(4.0)}, before / "call" / "files" / "model.safetensors")
    shutil.copytree(before, after)
    return before, after


def test_compare_equal_records_finds_nothing(records, capsys):
    assert compare(*records, ["*"], 0.0, False) == 0
    assert capsys.readouterr().out == "1 calls, 0 differences\n"


def test_compare_shows_each_difference_by_call_and_file(records, capsys):
    before, after = records
    (after / "call" / "log.txt").write_text("status 2\nloss 0.5123\n")
    save_file({"weight": torch.arange(4.0) + 1e-3}, after / "call" / "files" / "model.safetensors")
    (after / "call" / "files" / "new.txt").touch()
    shutil.copytree(before / "call", before / "older")
    assert compare(before, after, ["*"], 0.0, False) == 4
    output = capsys.readouterr().out
    assert "call: log.txt\n    -status 0\n    +status 2\n" in output
    assert "weight: differs by at most 0.001, largest value 3\n" in output
    assert f"call: files/new.txt\n    only in {after}\n" in output
    assert f"older: only in {before}\n" in output
    assert compare(before, after, ["old*"], 0.0, False) == 1


def test_with_sorted_metadata_keeps_tensors_and_has_one_order(tmp_path):
    file, tensors = tmp_path / "a.safetensors", {"b": torch.arange(3.0), "a": torch.ones(2, dtype=torch.int64)}
    contents = set()
    for names in ("pqrs", "srqp"):
        save_file(tensors, file, metadata={name: name for name in names})
        contents.add(with_sorted_metadata(file.read_bytes()))
    assert len(contents) == 1
    file.write_bytes(contents.pop())
    assert load_file(file).keys() == tensors.keys()
    assert all(torch.equal(value, tensors[name]) for name, value in load_file(file).items())


def test_compare_with_a_tolerance_ignores_only_floats_within_it(records):
    before, after = records
    (after / "call" / "log.txt").write_text("status 0\nloss 0.5124\n")
    save_file({"weight": torch.arange(4.0) * (1 + 1e-4)}, after / "call" / "files" / "model.safetensors")
    assert [compare(before, after, ["*"], rtol, False) for rtol in (0.0, 1e-6, 1e-3)] == [2, 2, 0]
    (after / "call" / "log.txt").write_text("status 1\nloss 0.5123\n")
    assert compare(before, after, ["*"], 0.5, False) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"eval_runtime": 0.25, "eval_loss": 0.25}', '{"eval_runtime": TIME, "eval_loss": 0.25}'),
        (
            "Trained 6 steps in 0.111 s, with a mean loss of 1.1.",
            "Trained 6 steps in TIME s, with a mean loss of 1.1.",
        ),
        ("mlm 4.5 (0.0 %), 1,467 tokens/s", "mlm 4.5 (0.0 %), TIME tokens/s"),
    ],
)
def test_normalizer_replaces_times_only(tmp_path, text, expected):
    assert NORMALIZATIONS
    assert normalizer(tmp_path)(f"{text} in {tmp_path}/out") == f"{expected} in WORK/out"
