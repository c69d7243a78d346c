"""The scripts of the skill run on tiny data, and SKILL.md shows calls that exist."""

import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml

import mybert

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "mybert"
SCRIPTS = sorted((SKILL / "scripts").glob("*.py"))
TABLE = "text\tlabel\n" + "".join(f"the {word} sat\t{word}\n" for word in ("cat", "dog") for _ in range(10))


@pytest.fixture
def run_script(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(SKILL / "scripts" / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_skill_has_a_head_and_a_call_of_each_script():
    _, head, body = (SKILL / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields.keys() == {"name", "description"} and fields["name"] == SKILL.name
    assert len(fields["description"]) <= 1024
    calls = [shlex.split(call) for call in re.findall(r"`python (scripts/[^`]+)`", body)]
    assert [SKILL / call[0] for call in calls] != [] and {SKILL / call[0] for call in calls} == {*SCRIPTS}
    for page in re.findall(r"`(docs/\w+\.md)`", body):
        assert (ROOT / page).is_file()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_explain_themselves_and_turn_errors_into_a_sentence(script, run_script, capsys):
    for arguments, status in ((["--help"], 0), ([], 2)):
        with pytest.raises(SystemExit) as ended:
            run_script(script.stem, *arguments)
        assert ended.value.code == status
        assert "Traceback" not in capsys.readouterr().err


def test_scripts_train_label_compare_and_publish(run_script, tiny_model, tmp_path, capsys):
    base = tiny_model(tmp_path / "base")
    (tmp_path / "train.tsv").write_text(TABLE)
    (tmp_path / "texts.txt").write_text("the cat sat\nthe dog sat\n")
    run_script("finetune_model", "train.tsv", "--model", base, "--output_dir", "model", "--max_steps", 2)
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())
    output = run_script("predict_file", "model", "texts.txt", "--output", "labels.csv", "--probabilities")
    assert json.loads(output)["rows"] == 2 and "probability_cat" in (tmp_path / "labels.csv").read_text()
    output = run_script("compare_models", "model", "model", "train.tsv", "--num_resamples", 50)
    assert "accuracy: " in output and "no difference that these data show" in output
    output = run_script("publish_model", "model", "me/model", "--output_dir", "published")
    assert "published/model.safetensors" in output
    with pytest.raises(SystemExit) as ended:
        run_script("predict_file", "missing", "texts.txt", "--output", "other.csv")
    assert ended.value.code == 2 and "missing" in capsys.readouterr().err


def test_scripts_pretrain_and_search(run_script, tmp_path):
    sentences = [f"the {word} sat on the mat\nit was happy\n" for word in ("cat", "dog", "fish", "tree")]
    (tmp_path / "corpus.txt").write_text("\n".join(sentences * 60))
    run_script("pretrain_bert", "corpus.txt", "--output_dir", "bert", "--vocab_size", 80, "--max_steps", 2)
    assert mybert.MyBertForPreTraining.from_pretrained("bert").config.hidden_size == 128
    (tmp_path / "texts.txt").write_text("the dog sat on the mat\nit was happy\nthe cat\n")
    lines = run_script("search_texts", "bert", "texts.txt", "it was happy", "--top_k", 2).splitlines()
    assert len(lines) == 2 and lines[0] == "1.0000\tit was happy"
