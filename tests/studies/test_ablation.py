import json
from pathlib import Path

import pytest

from mybert.command_line.flags import parse_flags
from mybert.pretraining import MODEL_SIZES
from mybert.studies import ROWS, AblationArguments, ablation, run_ablation, suite
from mybert.studies.suite import markdown_table


@pytest.fixture
def task_file(tmp_path):
    path = tmp_path / "task.tsv"
    rows = [f"the {animal} sat on the mat\t{animal}" for animal in ("cat", "dog")] * 8
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return str(path)


@pytest.fixture
def settings(tmp_path, text_file, task_file):
    return {
        "text": [str(text_file)],
        "output_dir": str(tmp_path / "out"),
        "tasks": {
            "classification": {
                "train_file": task_file,
                "validation_file": [task_file],
                "text_column": "text",
                "label_column": "label",
            }
        },
        "pretraining": {
            "vocab_size": 60,
            "vocab_layout": "compact",
            "model_size": "tiny",
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "max_length": 24,
            "max_steps": 3,
            "validation_split": 0.2,
            "per_device_train_batch_size": 4,
            "use_cpu": True,
            "num_processes": 1,
        },
        "finetuning": {"num_train_epochs": 1, "max_length": 24, "use_cpu": True},
        "disable_tqdm": True,
    }


def test_a_row_goes_before_what_contradicts_it(settings):
    rows = {"new": {}, "old": {"pretraining": {"model": "m", "max_hours": 1, "warmup_steps": 0.1}}}
    arguments = AblationArguments(**settings, variants=rows)
    new, old = (ablation.pretraining_plan(arguments, name, None).settings for name in rows)
    assert (new.vocab_size, new.hidden_size, new.max_hours) == (60, 16, None)
    assert (old.model, old.vocab_size, old.hidden_size, old.max_hours) == ("m", 30522, None, 1)


def test_rows_that_share_tokens_leave_out_how_these_were_made(tmp_path, settings):
    tokens = {"clean": ["html"], "do_lower_case": False}
    arguments = AblationArguments(
        **settings, variants={"one": {"pretraining": tokens}, "two": {"pretraining": tokens}}
    )
    one = ablation.pretraining_plan(arguments, "one", None).settings
    two = ablation.pretraining_plan(arguments, "two", tmp_path).settings
    assert (one.clean, one.do_lower_case, one.token_store) == (["html"], False, None)
    assert (two.clean, two.do_lower_case, two.tokenizer) == ([], True, str(tmp_path))


def test_run_ablation_of_a_row_from_scratch_does_not_pretrain(tmp_path, settings, monkeypatch):
    arguments = AblationArguments(**settings)
    assert ablation.needs_weights(arguments, "mlm+nsp")  # which the first row needs, too
    arguments = AblationArguments(**settings, rows=["untrained", "ltr"])
    assert [ablation.needs_weights(arguments, row) for row in arguments.row_names] == [False, True]
    arguments = AblationArguments(**settings, rows=["untrained"])
    monkeypatch.setattr(ablation, "run_pretraining", None)
    for _ in range(2):
        assert run_ablation(arguments)["untrained"].keys() == {"classification"}
    folder = tmp_path / "out" / "pretrained" / "untrained"
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 16
    assert not (folder / "model.safetensors").exists()
    config = json.loads((tmp_path / "out" / "finetuned" / "untrained" / "classification" / "config.json").read_text())
    assert (config["hidden_size"], config["vocab_size"]) == (16, 60)


@pytest.mark.parametrize("row", ["mlm+nsp", "untrained"])
def test_run_ablation_interrupted_says_so_and_writes_no_table(tmp_path, settings, monkeypatch, row):
    monkeypatch.setattr(ablation, "run_pretraining", lambda plan: {"interrupted": True})
    if row == "untrained":  # else nothing is fine-tuned
        monkeypatch.setattr(suite.Finetuning, "run", lambda self: {"interrupted": True})
    assert run_ablation(AblationArguments(**settings, rows=[row])) == {"interrupted": True}
    assert not (tmp_path / "out" / "ablation.json").exists()


@pytest.mark.slow
def test_every_row_is_pretrained_and_fine_tuned_as_it_says(tmp_path, settings):
    table = run_ablation(AblationArguments(**settings))
    out = tmp_path / "out"
    assert list(table) == list(ROWS)
    assert all(0 <= values["classification"] <= 1 for values in table.values())
    assert set(table["mlm+nsp"]) == {"perplexity", "MLM accuracy", "NSP accuracy", "classification"}
    assert set(table["ltr+bilstm"]) == {"perplexity", "MLM accuracy", "classification"}
    assert set(table["untrained"]) == {"classification"}
    config = {name: json.loads((out / "pretrained" / name / "config.json").read_text()) for name in ("no-nsp", "ltr")}
    assert not config["no-nsp"]["is_decoder"]
    assert config["ltr"]["is_decoder"]
    tuned = json.loads((out / "finetuned" / "ltr+bilstm" / "classification" / "config.json").read_text())
    assert tuned["is_decoder"]  # causal attention stays
    assert tuned["model_type"] == "mybert-bilstm"
    assert not (out / "pretrained" / "no-nsp" / "tokens.safetensors").exists()  # the first row's serve all
    lines = (out / "ablation.md").read_text().splitlines()
    assert lines[0] == "|  | perplexity | MLM accuracy | NSP accuracy | classification |"
    titles = [*(row.title for row in ROWS.values()), "Always the most frequent answer"]
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {title}" for title in titles]
    assert lines[-1].endswith(" | 50.0 |") and lines[-1].split(" | ")[1:3] == ["", ""]
    assert json.loads((out / "ablation.json").read_text())["table"] == table


@pytest.mark.slow
def test_own_rows_share_what_is_equal(tmp_path, settings):
    wide = {"hidden_size": 24, "num_attention_heads": 2}
    variants = {
        "short": {"title": "One step", "pretraining": {"max_steps": 1}},
        "wide": {"pretraining": wide},
        "wide, frozen": {"pretraining": wide, "finetuning": {"freeze": "encoder"}},
        "few entries": {"pretraining": {"vocab_size": 50}},
        "finished": {"model": str(tmp_path / "out" / "pretrained" / "short")},
    }
    settings["finetuning"] |= {"num_seeds": 2}
    arguments = AblationArguments(**settings, variants=json.dumps(variants))
    table = run_ablation(arguments)
    pretrained = tmp_path / "out" / "pretrained"
    assert sorted(path.name for path in pretrained.iterdir()) == ["few entries", "short", "wide"]
    made = [path.parent.name for path in pretrained.glob("*/tokens.safetensors")]
    assert sorted(made) == ["few entries", "short"]  # another vocabulary, other tokens
    assert json.loads((pretrained / "wide" / "config.json").read_text())["hidden_size"] == 24
    assert json.loads((pretrained / "short" / "trainer_state.json").read_text())["global_step"] == 1
    assert set(table["finished"]) == {"classification"}
    assert table["finished"] == {"classification": table["short"]["classification"]}
    report = json.loads((tmp_path / "out" / "ablation.json").read_text())
    tuned = json.loads((tmp_path / "out" / "finetuned" / "wide" / "classification" / "metrics.json").read_text())
    both = [metrics["accuracy"] for metrics in tuned["seeds"].values()]
    assert report["table"]["wide"]["classification"] == pytest.approx(sum(both) / 2)
    assert report["deviations"]["wide"]["classification"] == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    lines = (tmp_path / "out" / "ablation.md").read_text().splitlines()
    assert lines[2].startswith("| One step | ")
    assert all(" ± " in line for line in lines[2:-1])


def test_mistakes_are_found_before_training(tmp_path, settings, task_file):
    for change, message in (
        ({"tasks": {}}, "tasks is not set"),
        ({"tasks": "{"}, "tasks is not JSON"),
        ({"tasks": {"../sst2": {}}}, r"tasks has '\.\./sst2'; expected a name that a folder can have"),
        (
            {"tasks": {"perplexity": {"task": "sst2"}}},
            "tasks has 'perplexity', a column of the table; expected another name",
        ),
        ({"tasks": {"sst2": {}, "SST2": {}}}, "tasks has 'SST2' next to 'sst2'; expected names that differ in more"),
        ({"tasks": {"sst2": "glue/SST-2"}}, "The task sst2 is 'glue/SST-2'; expected a map"),
        ({"variants": {"a/b": {}}}, "a row 'a/b'; expected a name that a folder can have"),
        ({"variants": {"Wide": {}, "wide": {}}}, "a row 'wide' next to 'Wide'; expected names that differ in more"),
        ({"variants": {"wide": 512}}, "variants has 512 as wide; expected a map"),
        ({"variants": {"wide": {"hidden_size": 32}}}, "The row wide has hidden_size; expected some of title, pretr"),
        ({"variants": {"wide": {"pretraining": 32}}}, "The row wide has 32 as pretraining; expected a map"),
        ({"variants": {"wide": {"pretraining": {"hiden_size": 32}}}}, "pretraining has unknown settings: hiden_size"),
        ({"variants": {"wide": {}}, "rows": ["untrained"]}, "no row 'untrained'; expected some of wide"),
        ({"variants": {"wide": {"model": "bert", "pretraining": {"seed": 1}}}}, "wide has a model and settings"),
        ({"rows": ["mlm+nsp", "rtl"]}, r"no row 'rtl'; expected some of mlm\+nsp"),
        ({"pretraining": {"max_step": 3}}, "pretraining has unknown settings: max_step"),
        ({"pretraining": {"objective": "mlm"}}, "pretraining sets objective, which the rows decide"),
        ({"pretraining": {"model_size": "huge"}}, "model_size is 'huge'"),
    ):
        with pytest.raises(ValueError, match=message):
            AblationArguments(**settings | change)
    for change, message in (
        ({"tasks": {"classification": {"train_files": task_file}}}, "tasks has unknown settings: train_files"),
        ({"tasks": {"sst2": {"data_dir": str(tmp_path / "glue")}}}, "glue', which is not a folder"),
        ({"finetuning": {"lstm_size": 0}}, "lstm_size is 0"),
        ({"tasks": {"classification": {"train_file": task_file}}}, "There is no validation data for classification"),
        ({"finetuning": {"test_file": str(tmp_path / "gone.tsv")}}, "gone.tsv"),
        ({"variants": {"wide": {}, "done": {"model": "gone/"}}}, "no .*folder.*gone|gone.*no such folder"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            run_ablation(AblationArguments(**settings | change))
    assert not (tmp_path / "out").exists()
    titled = AblationArguments(**settings | {"variants": {"wide": {"title": 512}}})  # for YAML a number
    assert titled.all_rows["wide"].title == "512"


def test_a_title_may_hold_what_separates_cells():
    table = markdown_table([["", "a|b"], ["two\nlines", "1.0"]])
    assert table == "|  | a\\|b |\n| --- | ---: |\n| two lines | 1.0 |\n"


def read_recipe(name, *more):
    recipe = Path(__file__).parents[2] / "pretraining" / "recipes" / f"{name}.yaml"
    assert f"--config {name} " in recipe.read_text()
    flags = ["--config", str(recipe), "--text", "corpus", "--output_dir", "out", *more]
    return parse_flags("ablation", flags)


@pytest.mark.parametrize(
    ("name", "tasks", "layers"),
    [("ablation", {"sst2", "mrpc", "rte"}, 4), ("ablation_small", {"sst2", "mrpc", "stsb"}, 2)],
)
def test_recipes_are_read_as_the_command_reads_them(name, tasks, layers):
    arguments = read_recipe(name)
    assert arguments.row_names == list(ROWS)
    assert set(arguments.tasks) == tasks
    pretraining = ablation.pretraining_plan(arguments, "mlm+nsp", None).settings
    assert (pretraining.num_hidden_layers or MODEL_SIZES[pretraining.model_size][0]) == layers
    assert read_recipe(name, "--tasks", '{"rte": {"data_dir": "RTE"}}').tasks == {"rte": {"data_dir": "RTE"}}


def test_the_recipe_of_sizes_has_a_model_for_each():
    arguments = read_recipe("ablation_sizes")
    assert len(set(arguments.models().values())) == 3
    plans = [ablation.pretraining_plan(arguments, row, None) for row in arguments.row_names]
    runs = [plan.settings for plan in plans]
    assert {(plan.max_steps, plan.batch_size(plan.phases[0]), plan.longest) for plan in plans} == {(4500, 32, 64)}
    shapes = [(run.num_hidden_layers, run.hidden_size) for run in runs]
    assert shapes == [(None, None), (4, 128), (None, None)]
    assert [MODEL_SIZES[runs[number].model_size][:2] for number in (0, 2)] == [(2, 128), (4, 256)]


def test_the_recipe_of_short_runs_changes_one_part_after_the_other():
    arguments = read_recipe("ablation_short_runs")
    assert len(arguments.row_names) == 8
    assert len(set(arguments.models().values())) == 7  # the row without pretraining needs no model of its own
    runs = {row: ablation.pretraining_plan(arguments, row, None).settings for row in arguments.row_names}
    assert {(run.max_steps, run.vocab_size, run.model_size) for run in runs.values()} == {(2000, 8000, "tiny")}
    best = runs["counts, muon"]
    assert (best.embedding_init, best.optim, best.mlm_probability, best.causal_share) == (
        "cooccurrence",
        "muon",
        0.4,
        0.0,
    )
