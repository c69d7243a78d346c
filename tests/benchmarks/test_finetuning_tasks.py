"""`benchmarks/finetuning_tasks.py` makes its three tables, and does not repeat what is done."""

import pytest

SENTENCES = ["the cat sat on the mat", "a dog ate the bread", "it was a very happy fish", "the tree was sad today"]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for name in ("glue/STS-B", "glue/MRPC", "ner/wnut17"):
        (folder / name).mkdir(parents=True)
    pairs = [(SENTENCES[row % 4], SENTENCES[row // 4]) for row in range(16)]
    scores = ["sentence1\tsentence2\tscore", *(f"{a}\t{b}\t{5.0 * (a == b)}" for a, b in pairs)]
    same = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *(f"{int(a == b)}\t1\t2\t{a}\t{b}" for a, b in pairs)]
    for split in ("train", "dev"):
        (folder / "glue" / "STS-B" / f"{split}.tsv").write_text("\n".join(scores) + "\n")
        (folder / "glue" / "MRPC" / f"{split}.tsv").write_text("\n".join(same) + "\n")
    for split in ("train", "dev", "test"):
        (folder / "ner" / "wnut17" / f"{split}.conll").write_text("Ada B-person\nsat O\n\n" * 6)
    return folder


@pytest.mark.slow
def test_three_tables(run, tiny_model, data, tmp_path, capsys):
    model = tiny_model(tmp_path / "model", num_hidden_layers=4)
    flags = ["--data", data, "--output_dir", tmp_path / "runs", "--tasks", "MRPC", "--seeds", 2, "--max_steps", 1]
    shown = run("finetuning_tasks", model, *flags)
    rows = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| ")]
    tables = [row for row in rows if ":" in row or row == "task, metric"]
    assert tables == ["task, metric", "STS-B: what learns", "WNUT-17: features of the frozen encoder"]
    assert "MRPC, f1" in rows and rows.count("everything") == 1 and "concat_last_four" in rows
    assert shown.count("mybert finetune ") == 4 + 5 + 1

    with pytest.raises(SystemExit) as ended:
        run("finetuning_tasks", model, *flags[:-1], 2)
    assert ended.value.code == 2
    assert "holds a run with other settings (max_steps was 1, is 2)" in capsys.readouterr().err

    again = run("finetuning_tasks", model, *flags)
    assert "mybert finetune " not in again
    assert [line for line in again.splitlines() if line.startswith("|")] == [
        line for line in shown.splitlines() if line.startswith("|")
    ]
