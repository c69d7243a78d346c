"""Trained parts, learning rates and initial weights."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    TrainerCallback,
)

from mybert import MyBertConfig, MyBertForSequenceClassification, MyBertModel
from mybert.finetuning import finetune, plan_finetuning
from mybert.finetuning.heads import reinitialize_layers
from mybert.finetuning.training import run as training_run
from mybert.finetuning.training.parameters import Unfreezing, freeze_layers, layerwise_groups
from mybert.finetuning.training.trainings import Training, summarize


@pytest.fixture(scope="module")
def deep(tmp_path_factory, tiny_model):
    """A pretrained model with three layers."""
    return tiny_model(tmp_path_factory.mktemp("deep"), num_hidden_layers=3)


@pytest.fixture
def arguments(short_run, deep, reviews):
    defaults = {"model": str(deep), "max_steps": 6, "learning_rate": 1e-3, "save_strategy": "no"}
    return partial(short_run, per_device_train_batch_size=8, **defaults, **reviews)


def parts_of(names):
    """The parts of the encoder to which parameters belong."""
    return {".".join(name.split(".")[:3]) if name.startswith("encoder") else name.split(".")[0] for name in names}


def changed_parts(before, output_dir):
    """Which parts of the encoder differ between two model folders."""
    old, new = (MyBertModel.from_pretrained(folder).state_dict() for folder in (before, output_dir))
    return parts_of(name for name in old if not torch.equal(old[name], new[name]))


EVERYTHING = {"embeddings", "encoder.layer.0", "encoder.layer.1", "encoder.layer.2", "pooler"}


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({}, EVERYTHING),
        ({"freeze": "encoder"}, {"pooler"}),
        ({"freeze_layers": 0}, EVERYTHING - {"embeddings"}),
        ({"freeze_layers": 2}, {"encoder.layer.2", "pooler"}),
        ({"train_head_first": 1.0}, {"pooler"}),  # six steps of eight are an epoch
        ({"train_head_first": 0.5}, EVERYTHING),
        ({"gradual_unfreezing": 0.34}, {"encoder.layer.1", "encoder.layer.2", "pooler"}),
        ({"gradual_unfreezing": 0.1}, EVERYTHING),
    ],
)
def test_only_what_is_to_learn_learns(arguments, deep, tmp_path, settings, changed, caplog):
    finetune(arguments(**settings))
    assert changed_parts(deep, tmp_path / "out") == changed
    never = len(EVERYTHING - changed)
    what = "the encoder is" if never == 4 else f"{never} of the encoder's 4 parts are"
    is_said = f"Training ends at epoch 1, before {what} unfrozen" in caplog.text
    assert is_said == bool(never and settings.keys() & {"train_head_first", "gradual_unfreezing"})


def test_unfreezing_keeps_what_is_frozen_for_good(deep):
    model = MyBertForSequenceClassification.from_pretrained(deep)
    freeze_layers(model, 1)
    schedule = Unfreezing(model, head_first=2.0, gradual=1.0)

    for epoch, layers in ((1.9, ()), (2.0, (2,)), (3.0, (2, 1)), (9.0, (2, 1))):
        schedule.apply(epoch)
        learning = parts_of(name for name, parameter in model.bert.named_parameters() if parameter.requires_grad)
        assert learning == {"pooler", *(f"encoder.layer.{layer}" for layer in layers)}


@pytest.mark.parametrize(("decay", "factor"), [(0.5, 1.0), (1.0, 10.0), (0.5, 10.0)])
def test_learning_rates_by_layer_and_of_word_embeddings(deep, decay, factor):
    model = MyBertForSequenceClassification.from_pretrained(deep)
    groups = layerwise_groups(model, 1e-3, decay, 0.01, factor)
    found = {id(parameter): (group["lr"], group["weight_decay"]) for group in groups for parameter in group["params"]}
    assert len(found) == len(list(model.parameters()))
    assert groups[0]["lr"] == 1e-3  # which is logged
    for name, parameter in model.named_parameters():
        depth = {"bert.embeddings": 4, "bert.encoder.layer.0": 3, "bert.encoder.layer.1": 2, "bert.encoder.layer.2": 1}
        steps = next((steps for start, steps in depth.items() if name.startswith(start)), 0)
        rate = 1e-3 * decay**steps * (factor if "word_embeddings" in name else 1)
        weight_decay = 0.0 if "LayerNorm" in name or name.endswith("bias") else 0.01
        assert found[id(parameter)] == (pytest.approx(rate), weight_decay), name
    assert len(layerwise_groups(model, 1e-3, 1.0, 0.01)) == 2


def test_layers_of_an_encoder_unlike_bert_are_an_error():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = ModernBertModel(ModernBertConfig(vocab_size=30, pad_token_id=0, **sizes))
    with pytest.raises(ValueError, match=r"ModernBertModel has no encoder\.layer or transformer\.layer; this needs a"):
        freeze_layers(model, 1)


def test_a_bilstm_on_another_encoder_is_an_error(tmp_path, arguments, tiny_model):
    model = tiny_model(tmp_path / "distil", DistilBertModel, hidden_dim=16)
    with pytest.raises(
        ValueError, match=r"distil is of type distilbert; a BiLSTM can only be put on bert and mybert\."
    ):
        finetune(arguments(model=str(model), bilstm=True))
    assert not (tmp_path / "out").exists()


def test_top_layers_begin_anew(deep, user_error):
    model = MyBertForSequenceClassification.from_pretrained(deep)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    reinitialize_layers(model, 2)
    weights = {name for name in before if not torch.equal(before[name], model.state_dict()[name])}
    assert {name.split(".weight")[0] for name in weights if name.endswith("pooler.dense.weight")} == {
        "bert.pooler.dense"
    }
    assert {name.split(".")[3] for name in weights if "encoder" in name} == {"1", "2"}
    layer = model.bert.get_submodule("encoder.layer.1")
    assert layer.get_submodule("intermediate.dense").weight.std().item() == pytest.approx(0.02, rel=0.3)
    with user_error("--reinitialize_layers"):
        reinitialize_layers(model, 4)


@pytest.mark.slow
def test_seeds_keep_the_best(arguments, tmp_path):
    result = finetune(arguments(num_seeds=3, seed=5))
    out = tmp_path / "out"
    metrics = json.loads((out / "metrics.json").read_text())
    by_seed = {int(seed): values["accuracy"] for seed, values in metrics["seeds"].items()}
    assert set(by_seed) == {5, 6, 7}
    assert result["accuracy"] == metrics["accuracy"] == max(by_seed.values()) == by_seed[result["best_seed"]]
    assert result["mean"]["accuracy"] == pytest.approx(sum(by_seed.values()) / 3)
    assert [path.name for path in (out / "seed_5").iterdir()] == ["metrics.json"]
    assert "seed 7" in (out / "README.md").read_text()
    first = (out / "model.safetensors").read_bytes()
    finetune(arguments("alone", num_seeds=1, seed=result["best_seed"]))
    assert (tmp_path / "alone" / "model.safetensors").read_bytes() == first
    shutil.rmtree(tmp_path / "alone")
    assert finetune(arguments("alone", seed=7))["loss"] == metrics["seeds"]["7"]["loss"]
    shutil.rmtree(tmp_path / "alone")
    assert finetune(arguments(num_seeds=3, seed=5))["mean"] == result["mean"]  # nothing left to do


def summary(arguments, *measured, **settings):
    """What is kept of trainings with the seeds from 42 on that have these metrics."""
    trainings = [
        Training(f"seed {seed}", Path(str(seed)), seed, lambda: None, metrics=metrics)
        for seed, metrics in enumerate(measured, 42)
    ]
    return summarize(trainings, plan_finetuning(arguments(num_seeds=len(measured), **settings)))


def test_a_metric_that_only_some_seeds_have(arguments, user_error):
    """The metric of an entity type that the data lacks but a model predicts."""
    measured = ({"accuracy": 0.5}, {"accuracy": 0.75, "A_f1": 0.0})
    kept, metrics, spread = summary(arguments, *measured)
    assert (kept.name, metrics, spread["mean"]) == ("seed 43", measured[1], {"accuracy": 0.625})
    assert (spread["best_seed"], spread["seeds"]["42"]) == (43, {"accuracy": 0.5})
    with user_error("--metric_for_best_model"):
        summary(arguments, *measured, metric_for_best_model="A_f1")


def test_the_lowest_loss_is_best_among_equal_seeds(arguments):
    kept, *_ = summary(arguments, *({"loss": loss, "accuracy": 0.5} for loss in (0.7, 0.6, 0.8)))
    assert kept.name == "seed 43"


@pytest.mark.parametrize(
    "settings",
    [{"save_strategy": "epoch"}, {"num_seeds": 2, "eval_strategy": "no"}, {"folds": 2, "validation_file": None}],
)
def test_a_best_metric_that_there_is_not(arguments, tmp_path, settings):
    message = "metric_for_best_model is 'mood'; expected one of accuracy, loss, macro_f1"
    with pytest.raises(ValueError, match=message):
        finetune(arguments(metric_for_best_model="mood", **settings))
    assert not (tmp_path / "out").exists()


def test_the_model_is_not_overwritten(arguments, tmp_path, deep):
    model = shutil.copytree(deep, tmp_path / "out")
    with pytest.raises(ValueError, match=r"out holds files that no run wrote \(config.json, "):
        finetune(arguments(model=str(model), overwrite=True))
    (model / "run.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model.safetensors, which is already read or written by this call; name"):
        finetune(arguments(model=str(model), overwrite=True))
    assert (model / "model.safetensors").is_file()


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_finished_run_is_not_trained_again(arguments, tmp_path, monkeypatch, seeds):
    settings = {"save_strategy": "epoch", "eval_strategy": "epoch", "load_best_model_at_end": True, "num_seeds": seeds}
    first = finetune(arguments(**settings))
    card = tmp_path / "out" / "README.md"
    assert "| steps | 6 |" in card.read_text() and "epochs" not in card.read_text()
    card.write_text("as its owner has edited it")
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    monkeypatch.setattr(training_run.TaskTrainer, "train", lambda *args, **kwargs: pytest.fail("trains again"))
    assert finetune(arguments(**settings)) == first
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()} == files
    card.unlink()  # as if it had been killed before that
    assert finetune(arguments(**settings)) == first
    assert card.is_file()


def test_a_finished_run_is_not_repeated_with_other_settings(arguments, tmp_path, deep):
    settings = {"save_strategy": "epoch", "max_steps": 1, "lr_scheduler_type": "cosine_with_restarts"}
    finetune(arguments(**settings))
    for name, value in (
        ("model", str(shutil.copytree(deep, tmp_path / "copy"))),
        ("train_file", str(tmp_path / "dev.tsv")),
        ("metric_for_best_model", "loss"),
        ("label_smoothing_factor", 0.1),
        ("data_seed", 7),
        ("lr_scheduler_kwargs", {"num_cycles": 2}),
        ("dataloader_drop_last", True),
        ("eval_strategy", "no"),
    ):
        with pytest.raises(ValueError, match=rf"holds a run with other settings; .*\. What differs: .*{name} was "):
            finetune(arguments(**settings | {name: value}))
    finetune(arguments(**settings, logging_steps=7, dataloader_num_workers=0, run_name="again"))


def test_every_example_is_measured_where_training_drops_a_batch(arguments, tmp_path):
    settings = {"max_steps": 1, "per_device_eval_batch_size": 5, "test_file": [str(tmp_path / "dev.tsv")]}
    files = []
    for drop in (False, True):
        finetune(arguments(str(drop), **settings, dataloader_drop_last=drop))
        files.append([(tmp_path / str(drop) / name).read_text() for name in ("metrics.json", "predictions.tsv")])
    assert files[0] == files[1] and "test_accuracy" in files[0][0]


@pytest.mark.parametrize(
    ("settings", "metric"),
    [
        ({"save_strategy": "steps", "save_steps": 1, "eval_steps": 1}, "accuracy"),
        # The highest loss counts as best, which is not the last one.
        (
            {"save_strategy": "best", "eval_steps": 2, "metric_for_best_model": "loss", "greater_is_better": True},
            "loss",
        ),
    ],
)
def test_the_best_checkpoint_is_kept(arguments, log_history, settings, metric):
    metrics = finetune(arguments(eval_strategy="steps", learning_rate=1e-2, **settings))
    scores = [entry[f"eval_{metric}"] for entry in log_history() if "eval_runtime" in entry]
    assert metrics[metric] == pytest.approx(max(scores), abs=1e-6)
    assert metric != "loss" or max(scores) > scores[-1] + 1e-4


@pytest.fixture
def loads(monkeypatch):
    """Names of the classes whose weights are loaded."""
    found, load = [], PreTrainedModel.from_pretrained.__func__

    def record(cls, *args, **kwargs):
        if not cls.__name__.startswith("Auto"):
            found.append(cls.__name__)
        return load(cls, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(record))
    return found


@pytest.mark.parametrize(("settings", "count"), [({}, 1), ({"num_seeds": 2}, 3), ({"bf16_full_eval": True}, 2)])
def test_weights_are_loaded_once(arguments, loads, settings, count):
    """The same loaded model is checked, trained and run for the card; with several seeds, one load for each."""
    run = arguments(max_steps=1, card_examples=True, **settings)
    finetune(run)
    assert Path(run.output_dir, "README.md").read_text().count("(the data says:") == 3
    assert loads == ["MyBertForSequenceClassification"] * count


def test_a_frozen_encoder_is_loaded_for_all_data_at_once(arguments, loads, tmp_path):
    (tmp_path / "t.conll").write_text("a O\ncat B-A\n\nit O\nsat O\n")
    data = {"train_file": str(tmp_path / "t.conll"), "validation_file": str(tmp_path / "t.conll")}
    finetune(arguments(task="ner", approach="features", lstm_size=8, max_steps=1, **data))
    assert loads == ["MyBertModel"]


def test_an_evaluation_in_half_precision_leaves_the_model_as_it_is(arguments, same_weights):
    for name, rounds in (("whole", False), ("rounded", True)):
        finetune(arguments(name, bf16_full_eval=rounds, max_steps=2))
    same_weights("whole", "rounded")


def test_a_left_to_right_model_with_bilstm_is_loaded_again(arguments, tmp_path, deep, changed):
    model = str(changed(deep, is_decoder=True))
    metrics = finetune(arguments(model=model, bilstm=True, max_steps=60, learning_rate=5e-3))
    assert metrics["accuracy"] > 0.9
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert type(model).__name__ == "MyBertBiLstmForSequenceClassification"
    assert "import mybert\n" in (tmp_path / "out" / "README.md").read_text()
    assert model.config.is_decoder
    ids = torch.randint(5, 25, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    with torch.no_grad():
        padded = model(ids, attention_mask=mask).logits[1]
        alone = model(ids[1:, :6]).logits[0]
        other = model(ids.clone().index_fill_(1, torch.tensor([5]), 4)[1:, :6]).logits[0]
    assert torch.allclose(padded, alone, atol=1e-6)
    assert not torch.allclose(other, alone, atol=1e-6)  # the first hidden state depends on the last token
    again = finetune(arguments("more", model=str(tmp_path / "out"), max_steps=1))
    assert again["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("optim", "corrects_bias"), [("adamw_torch", None), ("google", False), ("adamw", True), ("muon", True)]
)
def test_finetune_has_the_named_optimizer_with_rates_by_layer(arguments, monkeypatch, optim, corrects_bias):
    seen = []

    class Look(TrainerCallback):
        interrupted = stopped = False

        def __init__(self, overwrites):
            pass

        def on_step_end(self, args, state, control, optimizer, **kwargs):
            seen.append(optimizer)

    monkeypatch.setattr(training_run, "StopOnInterrupt", Look)
    finetune(arguments(max_steps=1, optim=optim, layer_decay=0.9, learning_rate=1e-3))
    optimizer = getattr(seen[0], "optimizer", seen[0])
    assert optimizer.param_groups[0].get("correct_bias") is corrects_bias
    of_muon = [group["initial_lr"] for group in optimizer.param_groups if "momentum" in group]
    assert of_muon == ([pytest.approx(7e-3 * 0.9**depth) for depth in (1, 2, 3)] if optim == "muon" else [])
    of_adam = {group["initial_lr"] for group in optimizer.param_groups if "momentum" not in group}
    assert sorted(of_adam) == [pytest.approx(1e-3 * 0.9**depth) for depth in (4, 3, 2, 1, 0)]


def test_dropout_in_place_of_the_models_own(tmp_path, deep, arguments):
    shutil.copytree(deep, tmp_path / "without")
    config = MyBertConfig.from_pretrained(deep)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.save_pretrained(tmp_path / "without")
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    finetune(arguments("a"))
    finetune(arguments("b", model=str(tmp_path / "without"), dropout=0.1))
    finetune(arguments("c", dropout=0.0))
    as_it_is, again, none = (load_file(tmp_path / folder / "model.safetensors") for folder in "abc")
    assert all(torch.equal(again[name], as_it_is[name]) for name in as_it_is)
    assert not torch.equal(none["classifier.weight"], as_it_is["classifier.weight"])
    for folder, dropout in (("a", 0.1), ("b", 0.1), ("c", 0.0)):
        saved = json.loads((tmp_path / folder / "config.json").read_text())
        assert [saved[name] for name in names] == [dropout] * 2
    assert "| dropout | 0 |" in (tmp_path / "c" / "README.md").read_text()


def test_dropout_refused(tmp_path, arguments, tiny_model):
    model = tiny_model(tmp_path / "distil", DistilBertModel, hidden_dim=16)
    with pytest.raises(ValueError, match="of type distilbert, whose configuration has no hidden_dropout_prob"):
        finetune(arguments(model=str(model), dropout=0.1))
