"""What the settings of `mybert pretrain` do: objectives, a model or a store to start from; and which do not fit."""

import json
import logging
import os
import shutil

import pytest
import torch
from transformers import RobertaModel, TrainingArguments

from mybert import (
    MyBertConfig,
    MyBertForMaskedLM,
    MyBertForPreTraining,
    MyBertForSequenceClassification,
    MyBertTokenizer,
)
from mybert.files.errors import SettingError
from mybert.pretraining import PretrainingTrainer, build_token_store, plan_pretraining, pretrain
from mybert.pretraining import run as module
from mybert.runs import MyBertAdamW


@pytest.mark.parametrize(
    ("objective", "architecture", "is_decoder", "has_pairs"),
    [
        ("mlm+nsp", "MyBertForPreTraining", False, True),
        ("mlm+sop", "MyBertForPreTraining", False, True),
        ("mlm", "MyBertForMaskedLM", False, False),
        ("ltr", "MyBertForMaskedLM", True, False),
    ],
)
def test_pretrain_objective_decides_the_head(tmp_path, arguments, objective, architecture, is_decoder, has_pairs):
    metrics = pretrain(arguments(objective=objective))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert config["is_decoder"] is is_decoder
    assert ("eval_nsp_accuracy" in metrics) is has_pairs
    assert metrics["eval_perplexity"] > 1
    card = (tmp_path / "out" / "README.md").read_text()
    # A left-to-right model never saw [MASK]; no text of the corpus is on the card.
    assert card.count("The capital of France is [MASK].") == (objective != "ltr")
    assert f"| fraction of predicted tokens | {1.0 if objective == 'ltr' else 0.15} |" in card
    assert {"ltr": "left-to-right", "mlm+sop": "sentence order", "mlm": "masked LM."}.get(
        objective, "next sentence"
    ) in card


def test_a_model_goes_on_learning(tmp_path, arguments, user_error):
    pretrain(arguments("first"))
    first = str(tmp_path / "first")
    pretrain(arguments("second", model=first, learning_rate=0.0, weight_decay=0.0))
    one, two = (MyBertForPreTraining.from_pretrained(tmp_path / name).state_dict() for name in ("first", "second"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    pretrain(arguments("ltr", model=first, objective="ltr", dropout=0.0))
    config = MyBertForMaskedLM.from_pretrained(tmp_path / "ltr").config
    assert (config.is_decoder, config.hidden_dropout_prob, config.hidden_size) == (True, 0.0, 16)
    assert config.intermediate_size == 64
    with user_error("--max_length"):
        pretrain(arguments("long", model=first, max_length=513))
    with pytest.raises(ValueError, match="a model continues with the tokenizer it was trained with"):
        tokens = MyBertTokenizer(
            vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
            + [f"##{index}" for index in range(100)]
        )
        tokens.save_pretrained(tmp_path / "other")
        pretrain(arguments("other_run", model=first, tokenizer=str(tmp_path / "other")))
    assert not (tmp_path / "other_run").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_pairs_for_a_model_of_one_token_type_are_an_error_at_once(
    tmp_path, arguments, tiny_model, user_error, dry_run
):
    model = str(tiny_model(tmp_path / "model", MyBertForMaskedLM, type_vocab_size=1))
    with user_error("--objective") as error:
        pretrain(arguments(model=model, objective="mlm+sop", dry_run=dry_run))
    assert f"{model} has 1 (type_vocab_size)" in str(error.value) and not (tmp_path / "out").exists()
    assert pretrain(arguments(model=model, objective="mlm"))["step"] > 0


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_model_goes_on_with_its_vocabulary_or_an_extended_one(
    tmp_path, arguments, tiny_model, tokenizer, user_error, dry_run
):
    pieces = [*tokenizer.get_vocab()]
    pieces.sort(key=tokenizer.get_vocab().__getitem__)
    model = tiny_model(tmp_path / "model", MyBertForMaskedLM, vocab_size=len(pieces) + 2)
    MyBertTokenizer([*pieces, "[unused0]"]).save_pretrained(model)

    def run(number, vocabulary):
        MyBertTokenizer(vocabulary).save_pretrained(tmp_path / f"tokenizer{number}")
        given = {"tokenizer": str(tmp_path / f"tokenizer{number}"), "model": str(model)}
        return pretrain(arguments(f"out{number}", objective="mlm", dry_run=dry_run, **given))

    run(1, [*pieces, "new", "##er"])
    other = [*pieces[:-2], pieces[-1], pieces[-2], "[unused0]"]
    with user_error("--tokenizer") as error:
        run(2, other)
    assert f"2 of the {len(pieces) + 1} pieces of {model}, such as {pieces[-2]!r}, have" in str(error.value)
    assert not (tmp_path / "out2").exists()
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (model / name).unlink(missing_ok=True)
    run(3, other)  # nothing says which pieces the model has


def test_pretrain_with_a_tokenizer_of_other_rules_is_an_error(tmp_path, arguments, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    file = tmp_path / "tokenizer" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": {"type": "WhitespaceSplit"}}))
    with pytest.raises(ValueError, match=r"tokenizer.json has rules .*\(pre_tokenizer WhitespaceSplit\).* expected"):
        pretrain(arguments(tokenizer=str(tmp_path / "tokenizer")))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_token_store_in_place_of_text(tmp_path, arguments, text_file, tokenizer, documents):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    build_token_store(documents, tokenizer, tmp_path / "store.safetensors", show_progress=False)
    store = {"text": [], "token_store": str(tmp_path / "store.safetensors")}
    with pytest.raises(ValueError, match=r"no tokenizer.json next to .* with tokenizer"):
        pretrain(arguments("a", **store))
    pretrain(arguments("a", **store, tokenizer=str(tmp_path / "tokenizer")))
    pretrain(arguments("b", tokenizer=str(tmp_path / "tokenizer")))
    assert not (tmp_path / "a" / "tokens.safetensors").exists()
    a, b = (MyBertForPreTraining.from_pretrained(tmp_path / name).state_dict() for name in "ab")
    assert all(torch.equal(value, b[name]) for name, value in a.items())
    build_token_store(documents[:-5], tokenizer, tmp_path / "store.safetensors", show_progress=False)
    with pytest.raises(ValueError, match=r"store.safetensors changed since it began"):
        pretrain(arguments("a", **store, tokenizer=str(tmp_path / "tokenizer")))


def test_dry_run_reports_the_tokenizer_that_the_run_takes(tmp_path, arguments, store, tokenizer, user_error):
    shutil.copy(store.path, tmp_path / "store.safetensors")
    settings = {"dry_run": True, "model_size": "1x64"}
    from_store = settings | {"text": [], "token_store": tmp_path / "store.safetensors"}
    with pytest.raises(ValueError, match=r"no tokenizer.json next to .* with tokenizer"):
        pretrain(arguments(**from_store))
    tokenizer.save_pretrained(tmp_path)
    for given in (from_store, settings | {"tokenizer": tmp_path / "vocab.txt"}):
        report = pretrain(arguments(**given))
        assert report["model"]["pieces"] == len(tokenizer)
        assert report["vocabulary"]["from"] == str(given.get("tokenizer", tmp_path))
    with user_error("--validation_split"):
        pretrain(arguments(**from_store, validation_split=0.99))
    MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"store\.safetensors"):
        pretrain(arguments(**from_store))


def test_too_few_documents_to_hold_out_are_said(arguments, caplog, user_error):
    few = {"validation_split": 0.02, "max_steps": 1}  # of 60 documents, one
    with user_error("--validation_split --do_eval"):
        pretrain(arguments(**few, do_eval=True))
    with user_error("--validation_split --eval_strategy"):
        pretrain(arguments(**few, eval_strategy="steps"))
    with caplog.at_level("INFO", logger="mybert"):
        metrics = pretrain(arguments(**few))
    assert "validation_split is 0.02; of 60 documents" in caplog.text and "Nothing is held out." in caplog.text
    assert not any(name.startswith("eval") for name in metrics)


def test_dry_run_of_data_in_memory_counts_no_file_of_its_name(tmp_path, arguments, documents, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("another text")
    report = pretrain(arguments(dry_run=True, text=documents))
    assert report["text"] == {"sources": ["text"]}


def test_dry_run_rejects_inputs_that_the_run_rejects(tmp_path, arguments):
    (tmp_path / "pairs.jsonl").write_text('{"a": "b"}\n')
    with pytest.raises(ValueError, match=r"pairs\.jsonl has the columns 'a'"):
        pretrain(arguments(dry_run=True, minimal_pairs=str(tmp_path / "pairs.jsonl")))


@pytest.mark.parametrize(
    ("settings", "unused"),
    [
        ({}, {"row_length": 64}),
        ({"text": [], "token_store": "store"}, {"clean": ["html"], "document_end": "file"}),
        ({"text": [], "token_store": "store"}, {"filter": ["duplicates"]}),
    ],
)
def test_settings_without_effect_are_errors(arguments, settings, unused):
    with pytest.raises(SettingError) as error:
        arguments(**settings, **unused)
    assert set(error.value.options) & set(unused)


def test_a_run_too_short_for_curves(tmp_path, arguments):
    pretrain(arguments(logging_steps=50, max_steps=2, validation_split=0.0))
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert not (tmp_path / "out" / "training_curves.png").exists()


def test_pretrain_with_packed_rows_learns(arguments, history):
    metrics = pretrain(arguments(pack=True, row_length=48, per_device_train_batch_size=4, dropout=0.0))
    assert metrics["eval_mlm_loss"] < 6
    assert any("nsp_accuracy" in entry for entry in history())


@pytest.mark.slow
def test_a_path_is_as_good_as_its_name(tmp_path, arguments, text_file, tokenizer):
    text = text_file.rename(tmp_path / "my-text.txt")
    assert arguments(text=str(text)).text == arguments(text=text).text == [str(text)]
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    pretrain(arguments(text=[text], tokenizer=tmp_path / "tokenizer", max_steps=1))
    store = tmp_path / "out" / "tokens.safetensors"
    pretrain(arguments("again", text=[], token_store=store, model=tmp_path / "out", max_steps=1))
    assert (tmp_path / "again" / "model.safetensors").exists()
    with pytest.raises(ValueError, match="is already read or written"):
        pretrain(arguments("again", text=[text], model=tmp_path / "again", overwrite=True))
    assert (tmp_path / "again" / "model.safetensors").exists()


@pytest.mark.slow
def test_lasting_workers_evaluate_on_the_same_examples(arguments, history):
    settings = {"learning_rate": 0.0, "weight_decay": 0.0, "eval_strategy": "steps", "eval_steps": 1}
    pretrain(arguments("plain", **settings))
    pretrain(arguments("lasting", **settings, dataloader_num_workers=1, dataloader_persistent_workers=True))
    plain, lasting = (
        [entry["eval_loss"] for entry in history(name) if "eval_loss" in entry] for name in ("plain", "lasting")
    )
    assert lasting == plain == [plain[0]] * 4


@pytest.mark.parametrize(
    ("pack", "device", "dropout", "said"),
    [(True, "cuda", 0.1, True), (True, "cuda", 0.0, False), (True, "cpu", 0.1, False), (False, "cuda", 0.1, False)],
)
def test_the_cost_of_attention_dropout_in_packed_rows_is_logged(
    arguments, tokenizer_folder, monkeypatch, caplog, pack, device, dropout, said
):
    settings = arguments(pack=pack, dropout=dropout, tokenizer=tokenizer_folder)
    monkeypatch.setattr(
        TrainingArguments, "device", property(lambda self: self._setup_devices and torch.device(device))
    )
    monkeypatch.setattr(module, "PretrainingTrainer", None)  # it would move the model to the device
    with caplog.at_level(logging.INFO, logger="mybert"), pytest.raises(TypeError, match="'NoneType' object is not ca"):
        pretrain(settings)
    assert (f"Attention has a dropout of {dropout}" in caplog.text) is said


@pytest.mark.parametrize(("metric", "greater"), [("eval_perplexity", False), ("loss", False), ("mlm_accuracy", True)])
def test_the_best_model_is_the_one_of_less_perplexity(arguments, metric, greater):
    for settings, expected in (({}, greater), ({"greater_is_better": not greater}, not greater)):
        plan = plan_pretraining(arguments(metric_for_best_model=metric, **settings))
        assert plan.training.greater_is_better is expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes among its files")
def test_a_pipe_is_refused(tmp_path, arguments):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe is a pipe, which can be read only once; give files or a token store"):
        pretrain(arguments("piped", text=[str(tmp_path / "pipe")]))
    assert not (tmp_path / "piped").exists()


def test_packed_rows_need_a_process_for_each_gpu(arguments, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "n_gpu", 1)
    arguments(pack=True)
    monkeypatch.setattr(TrainingArguments, "n_gpu", 2)
    arguments()
    with pytest.raises(ValueError, match=r"pack is set and 2 GPUs share one process, .* torchrun or accelerate"):
        arguments(pack=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_learns_in_float32(tmp_path, arguments, tokenizer, make_model, monkeypatch, dtype):
    make_model().to(dtype).save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    trained = []
    train = PretrainingTrainer.train
    monkeypatch.setattr(
        PretrainingTrainer, "train", lambda self, **given: (trained.append(self.model.dtype), train(self, **given))[1]
    )
    pretrain(arguments("more", model=str(tmp_path / "half"), max_steps=1))
    assert trained == [torch.float32]
    assert MyBertForPreTraining.from_pretrained(tmp_path / "more").dtype == torch.float32


def test_pretrain_quantized_model_is_rejected_before_the_text_is_read(tmp_path, arguments, tokenizer, make_model):
    model = make_model()
    model.config.quantization_config = {"quant_method": "gptq"}
    model.save_pretrained(tmp_path / "int4")
    tokenizer.save_pretrained(tmp_path / "int4")
    with pytest.raises(ValueError, match=r"int4: its weights are quantized \('gptq'\); expected floating-point"):
        pretrain(arguments("more", model=str(tmp_path / "int4")))
    assert not (tmp_path / "more").exists()


def test_pretrain_from_a_model_of_another_type_is_an_error(tmp_path, arguments, tiny_model):
    tiny_model(tmp_path / "roberta", RobertaModel)
    with pytest.raises(SettingError, match=r"of type 'roberta'; pretraining can continue with .* only") as error:
        pretrain(arguments("more", model=str(tmp_path / "roberta")))
    assert error.value.options == ("model",)
    assert not (tmp_path / "more").exists()


def test_pretrain_from_a_tuned_model_drops_its_task(tmp_path, arguments, tiny_model):
    head = {"id2label": {0: "hours"}, "problem_type": "regression", "finetuned_for": {"task": "regression"}}
    tiny_model(tmp_path / "tuned", MyBertForSequenceClassification, **head, hidden_dropout_prob=0.3)
    pretrain(arguments("more", model=str(tmp_path / "tuned"), max_steps=1))
    config = MyBertConfig.from_pretrained(tmp_path / "more")
    assert (config.num_labels, config.problem_type, hasattr(config, "finetuned_for")) == (2, None, False)
    assert (config.hidden_dropout_prob, config.hidden_size) == (0.3, 16)
    assert "hours" not in (tmp_path / "more" / "README.md").read_text()


@pytest.mark.parametrize(
    ("optim", "kind", "corrects"),
    [
        (None, MyBertAdamW, False),
        ("google", MyBertAdamW, False),
        ("adamw", MyBertAdamW, True),
        ("sgd", torch.optim.SGD, None),
        ("adamw_torch_fused", torch.optim.AdamW, None),
    ],
)
def test_an_optimizer_that_is_named_is_taken(arguments, make_model, optim, kind, corrects):
    of_adam = {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-5}
    settings = arguments(weight_decay=0.3, **of_adam, **{} if optim is None else {"optim": optim})
    optimizer = PretrainingTrainer(model=make_model(), args=settings).create_optimizer()
    assert type(optimizer) is kind
    assert optimizer.defaults.get("correct_bias") is corrects
    assert kind is torch.optim.SGD or {"betas": (0.8, 0.95), "eps": 1e-5}.items() <= optimizer.defaults.items()
    assert sorted({group["weight_decay"] for group in optimizer.param_groups}) == [0.0, 0.3]
