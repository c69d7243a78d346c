"""Every option that decides a result reaches it: a run whose command line has another value gives another result.

A new option of a command fails here until a run shows its effect. If no value can be derived from its declaration, or
only certain data shows it, it needs an entry in `CASES`; if it changes no result, it belongs to `NEUTRAL`.
"""

import json
import re
import typing
from functools import cache, partial
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from transformers import BertForPreTraining

import mybert
from mybert import cli
from mybert.conversion import export_google_checkpoint
from mybert.files.choices import superseded
from mybert.files.options import options_of, types_of
from mybert.finetuning import comparison
from mybert.finetuning.prediction import predictor
from mybert.pretraining import build_token_store
from mybert.runs import TrainingSettings, run_folder
from mybert.runs.trainer_options import is_inherited

OF_A_RUN = {"max_steps": 2, "learning_rate": 0.01, "max_length": 16, "per_device_train_batch_size": 8}
OF_A_RUN |= {"save_strategy": "no", "use_cpu": True, "warmup_steps": 0}
OF_TEXT = {"text": ["text.txt"], "num_processes": 1, "quiet": True}
OF_PRETRAINING = OF_A_RUN | OF_TEXT | {"max_length": 24, "validation_split": 0.1}
VOCABULARY = {"vocab_size": 100, "vocab_layout": "compact"}
NEW_MODEL = VOCABULARY | {"model_size": "tiny", "num_hidden_layers": 1, "hidden_size": 16}
# Data of a task -> its file, and the task's name.
DATA = {
    "classes": ("rows.tsv", "classification"),
    "labels": ("rows.tsv", "multilabel"),
    "values": ("rows.tsv", "regression"),  # its metrics depend on all digits
    "tags": ("tags.conll", "ner"),
    "questions": ("questions.json", "squad_v2"),
    "choices": ("rows.tsv", "multiple_choice"),
}
COLUMNS = {"choices": {"choice_columns": ["other", "third"]}}


def of_training(data, **settings):
    file, task = DATA[data]
    files = {"train_file": file, "validation_file": [file], "task": task}
    return OF_A_RUN | {"quiet": True} | files | COLUMNS.get(data, {}) | settings


def of_prediction(task_data, **settings):
    data = {"model": task_data, "data": [DATA[task_data][0]]}
    return {"use_cpu": True, "quiet": True} | data | COLUMNS.get(task_data, {}) | settings


# Command -> a small run of it, for the data of a task where it has one.
RUNS = {
    "vocab": lambda data: OF_TEXT | VOCABULARY,
    "data": lambda data: OF_TEXT | {"tokenizer": "pretrained", "export": "HERE/examples.jsonl", "max_length": 24},
    "pretrain": lambda data: OF_PRETRAINING | NEW_MODEL,
    "adapt": lambda data: OF_PRETRAINING | {"model": "pretrained", "new_pieces": 4},
    "finetune": lambda data: of_training(data, model="pretrained"),
    "distill": lambda data: of_training(data, teacher=data, student="pretrained"),
    "predict": of_prediction,
    "evaluate": partial(of_prediction, predictions_dir="HERE/predictions"),
    "compare": lambda data: of_prediction(data, model=None, models=[data, f"{data}_2"], report="HERE/report.json"),
    "score": lambda data: of_prediction(data, model="pretrained", data=["rows.tsv"]),
    "features": lambda data: {"model": "pretrained", "text": ["rows.tsv"], "features": "last", "quiet": True},
    "glue": lambda data: (
        {"model": "pretrained", "data_dir": "one", "suite": "suite.yaml", "quiet": True}
        | {"finetuning": json.dumps(OF_A_RUN)}
    ),
    "convert google": lambda data: {"source": "google", "quiet": True},
    "convert to-google": lambda data: {"model": "like_google", "quiet": True},
    "convert bert": lambda data: {"model": "bert", "quiet": True},
    "convert to-bert": lambda data: {"model": "pretrained", "quiet": True},
}
# Not run here: options that say what is shown, or that are another command's; and exports of graphs, which take long.
OTHERS = [*"demo ablation card push attention curves bench completion".split(), "convert onnx", "convert openvino"]
KINDS = {name: cli.COMMANDS[name].load_settings() for name in RUNS}
# Command -> options whose tests are slow here: another command has them, too, or each trains several times.
SLOW = {"adapt": KINDS["pretrain"], "finetune": TrainingSettings, "distill": KINDS["finetune"]}
SLOW |= dict.fromkeys(("evaluate", "compare"), KINDS["predict"]) | {"glue": KINDS["glue"]}

# Where a result is written, what is shown or only measured, and how it is computed.
NEUTRAL = set(
    "output output_dir overwrite report report_dir predictions_dir export quiet disable_tqdm run_name card_examples "
    "do_train use_cpu num_processes threads batch_size activation_checkpointing torch_compile dataloader_num_workers "
    "dataloader_pin_memory ddp_find_unused_parameters per_device_eval_batch_size minimal_pairs score.label_column "
    "verify".split()
)
# Those whose effect only something else than a single run on a CPU shows.
ELSEWHERE = {
    "a GPU": "tf32 fp16",
    "several processes": "average_tokens_across_devices",
    "GaLore": "optim_target_modules",
    "the Hub": "dataset dataset_config",
    "a resumed run": "ignore_data_skip save_only_model",
    "a store or predictions of an earlier call": "append predictions",
    "a folder of OpenVINO": "engine",
    "a checkpoint of Google's training": "optimizer_state ignore",
}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1}
BEST = EVALUATED | {"load_best_model_at_end": True, "save_strategy": "steps", "save_steps": 1}
BEST |= {"max_steps": 4, "learning_rate": 0.3}
LOWEST = BEST | {"greater_is_better": False, "metric_for_best_model": ("mlm_loss", "mlm_accuracy")}
AN_EPOCH = {"max_steps": None, "num_train_epochs": 1, "per_device_train_batch_size": 64}
GIVEN_MODEL = dict.fromkeys(NEW_MODEL)  # which has all these
PHASE = {"phase2_max_length": 32, "phase2_steps": 1}
LONG = {"max_length": 8, "window_pooling": "mean"}
# What shows the effect of an option, in all commands or in one: settings for both runs, None for the usual ones. The
# option itself has the value of the second run, or those of both; `on` is the data of a task. "rejected": the first
# run is, so the option has the effect that there is a result.
CASES = {
    # text and vocabularies
    "text": {"text": (["text.txt"], ["more.txt"])},
    "features text": {"text": (["rows.tsv"], ["more.txt"])},
    "encoding": {"on": "values", "encoding": "latin-1"},
    "text_column": {"text_column": ("text", "other")},
    **{
        f"{name} text_column": {"text": ["rows.tsv"], "text_column": ("text", "other")}
        for name in ("vocab", "data", "pretrain", "adapt")
    },
    "vocab join_lines": {"validation_split": 0.3},  # of the lines
    "document_end": {"document_end": "blank_lines"},
    "heading_pattern": {"heading_pattern": "^Cat"},
    "clean": {"text": ["pages.txt"], "clean": ["html"]},
    "filter": {"filter": ["duplicates"]},
    "symbol_share": {"filter": ["symbol_lines"], "symbol_share": 0.2},
    "scripts": {"filter": ["other_scripts"], "scripts": (["Latin"], ["Latin", "Greek"])},
    "tokens_per_character": {"filter": ["many_tokens"], "tokens_per_character": (1.0, 0.4)},
    "vocab_size": {"vocab_size": 90},
    "vocab_layout": {"vocab_size": 1100, "vocab_layout": ("compact", "google")},
    "character_coverage": {"character_coverage": 0.9},
    "min_frequency": {"min_frequency": 500},
    # examples
    "data max_length": {"max_length": 16},
    "shard_index": {"num_shards": 2, "shard_index": (0, 1), "export": None},
    "num_shards": {"num_shards": (2, 3), "export": None},
    "shard_by": {"text": ["text.txt", "more.txt"], "num_shards": 2, "shard_by": "files", "export": None},
    "dry_run": {"export": None},
    "max_length": {"max_length": 5},
    "pretrain max_length": {"max_length": 16},
    "row_length": {"pack": True, "row_length": 48},
    "random_replace_prob": {"random_replace_prob": 0.2},
    "masking_unit": [{"masking_unit": "word"}, {"masking_unit": ("word", "span")}],
    "max_predictions": {"max_predictions": 1},
    "ltr_probability": {"objective": "ltr"},
    "data static_masking": {},
    "static_masking": AN_EPOCH | {"num_train_epochs": 2},
    # a new model, or a given one
    "model_size": {"model_size": "mini"},
    "hidden_size": {"hidden_size": 32},
    "num_attention_heads": {"num_attention_heads": 4},
    "tokenizer": dict.fromkeys(VOCABULARY) | {"tokenizer": ("pretrained", "shuffled")},
    "adapt tokenizer": {"tokenizer": ("shuffled", "pretrained"), "new_pieces": 0, "rejected": True},
    "distill tokenizer": {"tokenizer": ("pretrained", "shuffled"), "student": "1x64"},
    "model": {"model": ("pretrained", "other")},
    "pretrain model": GIVEN_MODEL | {"model": ("pretrained", "other")},
    **{f"{name} model": {"model": ("classes", "classes_2")} for name in ("predict", "evaluate")},
    "token_store": dict.fromkeys(("text", *VOCABULARY))
    | {"tokenizer": "pretrained", "token_store": ("one.safetensors", "two.safetensors")},
    "adapt token_store": {"text": None, "new_pieces": 0, "token_store": ("one.safetensors", "two.safetensors")},
    "new_piece_frequency": {"new_piece_frequency": 1000},
    "append_pieces": {"append_pieces": False},
    # training
    "max_steps": {"max_steps": 3},
    "num_train_epochs": AN_EPOCH | {"num_train_epochs": (1, 2)},
    "max_hours": AN_EPOCH | {"max_hours": 1e-5},
    "learning_rate": {"learning_rate": 1e-3},
    "warmup_steps": {"warmup_steps": 2},
    "lr_scheduler_type": {"lr_scheduler_type": "constant"},
    "lr_scheduler_kwargs": {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": '{"power": 2.0}'},
    "optim": {"optim": "muon"},
    "optim_args": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "muon_learning_rate": {"optim": "muon"},
    "label_smoothing_factor": [{}, {"class_weights": "balanced"}],  # two losses
    "max_grad_norm": {"max_grad_norm": 0.01},
    "bf16_full_eval": EVALUATED,
    "fp16_full_eval": EVALUATED,
    "dataloader_drop_last": AN_EPOCH | {"per_device_train_batch_size": 16},
    "train_sampling_strategy": {"train_sampling_strategy": "group_by_length"},
    "eval_strategy": {"eval_strategy": "steps", "logging_steps": 1},
    "eval_steps": EVALUATED | {"eval_steps": (1, 2)},
    "eval_delay": EVALUATED | {"eval_delay": 2},
    "save_strategy": {"save_strategy": "steps", "save_steps": 1},
    "save_steps": {"save_strategy": "steps", "save_total_limit": 2, "save_steps": (1, 2)},
    "save_total_limit": {"save_strategy": "steps", "save_steps": 1, "save_total_limit": (1, 2)},
    "logging_steps": {"logging_steps": (1, 2)},
    "load_best_model_at_end": BEST | {"load_best_model_at_end": (False, True)},
    "distill load_best_model_at_end": BEST
    | {"metric_for_best_model": "loss", "greater_is_better": True, "load_best_model_at_end": (False, True)},
    "metric_for_best_model": BEST | {"metric_for_best_model": ("accuracy", "loss"), "learning_rate": 1e-3},
    "distill metric_for_best_model": LOWEST | {"metric_for_best_model": ("loss", "accuracy")},
    "pretrain metric_for_best_model": LOWEST,
    "adapt metric_for_best_model": LOWEST,
    "greater_is_better": BEST | {"metric_for_best_model": "loss", "greater_is_better": (False, True)},
    "early_stopping_patience": BEST | {"learning_rate": 0.0, "early_stopping_patience": 1},
    "batch_ramp": {"gradient_accumulation_steps": 2},
    "phase2_max_length": PHASE | {"phase2_max_length": (24, 32)},
    "phase2_steps": PHASE | {"max_steps": 4, "phase2_steps": (1, 2)},
    "phase2_positions": PHASE,
    "phase2_per_device_train_batch_size": PHASE,
    "phase2_gradient_accumulation_steps": PHASE,
    # what is fine-tuned on what
    "train_file": {"train_file": ("rows.tsv", "more.tsv")},
    "validation_file": {"validation_file": (["rows.tsv"], ["more.tsv"])},
    "test_file": {"test_file": (["rows.tsv"], ["more.tsv"])},
    "data": {"data": (["rows.tsv"], ["more.tsv"])},
    "data_dir": dict.fromkeys(("train_file", "validation_file")) | {"task": "sst2", "data_dir": ("one", "two")},
    "task": {"task": ("classification", "regression"), "label_column": "label"},
    **{
        f"{name} task": {"task": ("classification", "mrpc")}
        | {"text_column": "text", "text_pair_column": "other", "label_column": "label"}
        for name in ("distill", "evaluate", "compare")
    },
    "predict task": {"on": "questions", "task": ("squad_v2", "squad"), "null_score_threshold": -100.0},
    "score task": {"data": ["cola.tsv"], "task": "cola", "rejected": True},
    "group_columns": {
        "text_column": "text",
        "text_pair_column": "other",
        "group_columns": (["label"], ["label", "labels"]),
        "report": "HERE/report.json",
    },
    "text_pair_column": {"text_column": "text", "text_pair_column": "other"},
    "choice_columns": {"on": "choices", "choice_columns": (["other", "third"], ["third", "other"])},
    "label_column": {"label_column": "a"},
    "label_columns": {"on": "labels", "label_columns": ["a", "b", "c"]},
    "label_separator": {"on": "labels", "label_column": "mixed", "label_separator": "/", "rejected": True},
    "finetune label_separator": {"on": "labels", "label_column": "mixed", "label_separator": "/"},
    "skip_empty": {"train_file": "holes.tsv", "rejected": True},
    "allow_unusual_labels": {"train_file": "null.tsv", "rejected": True},
    **{f"{name} skip_empty": {"data": ["holes.tsv"], "rejected": True} for name in ("predict", "evaluate", "compare")},
    "max_train_samples": {"max_train_samples": 16},
    "validation_split": {"validation_file": None},
    **{f"{name} validation_split": {} for name in ("vocab", "pretrain", "adapt")},
    "folds": {"validation_file": None},
    "num_seeds": {"num_seeds": 2},
    "dtype": {"on": "values"},
    "window_pooling": [{"max_length": 8}, LONG | {"on": "values", "window_pooling": ("mean", "max")}],
    "doc_stride": LONG | {"on": "values", "doc_stride": 1},
    "max_document_context": {"on": "tags"},
    "continuation_labels": {"on": "tags", "continuation_labels": "inside"},
    "max_question_length": {"on": "questions", "max_length": 16},
    "max_answer_length": {"on": "questions", "max_answer_length": 1},
    "max_context": {"on": "questions", "max_length": 16, "doc_stride": 4, "max_context": (False, True)},
    "null_score_threshold": {"on": "questions", "null_score_threshold": (-100.0, 100.0)},
    "n_best_size": {"on": "questions"},
    "predict n_best_size": {"on": "questions", "top_k": 25, "n_best_size": 30, "rejected": True},
    "confidence_threshold": {"confidence_threshold": 0.99},
    # which parts are trained, and how
    "freeze_layers": {"freeze_layers": 1},
    "reinitialize_layers": {"reinitialize_layers": 1},
    "peft_config": {"peft_config": "lora.json"},
    "pooling": {"pooling": "mean"},
    "new_head": {"model": "classes"},
    "distill new_head": {"student": "classes"},
    "keep_model_type": {"model": "bert"},
    "distill keep_model_type": {"student": "bert"},
    "approach": {"learning_rate": None},
    "class_names": {"train_file": None, "class_names": (["good", "bad"], ["happy", "sad"]), "validation_file": None},
    "label_template": {
        "train_file": None,
        "class_names": ["good", "bad"],
        "label_template": ("About {}.", "It is {}."),
        "validation_file": None,
    },
    "features": {"on": "tags", "approach": "features", "features": ("last", "embeddings"), "lstm_size": 8},
    "features features": {"features": ("last", "embeddings")},
    "lstm_size": {"on": "tags", "approach": "features", "features": "last", "lstm_size": (8, 16)},
    "teacher": {"teacher": ("classes", "classes_2")},
    "student": {"student": ("pretrained", "other")},
    "unlabeled": {"unlabeled": ["more.tsv"]},
    "teacher_embeddings": {"student": "1x64"},
    # predictions
    "top_k": {"top_k": 2},
    "keep_columns": {"keep_columns": ["text"]},
    "models": {"models": (["classes", "classes_2"], ["classes_2", "classes"])},
    "features pooling": {"pooling": "mean"},
    "weights": {"features": "weighted_all", "weights": [1.0, 2.0, 3.0]},
    "layer": {"features": None, "layer": (0, 1)},
    # studies and conversions
    "glue data_dir": {"data_dir": ("one", "two")},
    "suite": {"suite": ("suite.yaml", "suite_2.yaml")},
    "only": {"only": ["first"]},
    "train_sizes": {"train_sizes": [8]},
    "grid": {"grid": '{"learning_rate": [0.01, 0.1]}'},
    "finetuning": {"finetuning": json.dumps(OF_A_RUN | {"learning_rate": 0.1})},
    "source": {"source": ("google", "google_2")},
    "config_file": {"config_file": ("google/bert_config.json", "relu.json")},
    "vocab_file": {"vocab_file": ("pretrained/vocab.txt", "shuffled/vocab.txt")},
    "do_lower_case": {"do_lower_case": False},
    "strip_accents": {"strip_accents": (False, True)},
    "head": {"head": "masked-lm"},
    "labels": {"head": "classifier", "labels": (["no", "yes"], ["yes", "no"])},
    "convert google task": {"head": "classifier", "task": "mrpc"},
    "convert google seed": {"head": "classifier"},
    "convert bert model": {"model": ("bert", "other")},
    "convert to-bert model": {"model": ("pretrained", "other")},
    "convert to-google model": {"model": ("like_google", "like_google_2")},
    "allow_other_activation": {"model": "pretrained", "rejected": True},
}
MEASURED = re.compile("eval_(?!.*(runtime|per_second))")
RECORDS = set("run.json conversion.json README.md training_args.bin training_curves.png tokenizer_config.json".split())


def options(name):
    """The options of a command that must have an effect, and their types."""
    kind = KINDS[name]
    hints = types_of(kind)
    required = {each.name: "x" for each in options_of(kind).values() if getattr(each, "required", False)}
    never = {*superseded(kind, required, {}), *getattr(kind, "unsupported", ())}
    never |= {*NEUTRAL, *" ".join(ELSEWHERE.values()).split()}
    for each in options_of(kind).values():
        is_ours = getattr(each, "decides", None) or not is_inherited(each)
        if each.init and is_ours and never.isdisjoint((each.name, f"{name}.{each.name}")):
            yield each, hints[each.name]


def other_value(each, hint):
    """A value of an option that is not its default, from its declaration; None if there is none."""
    parts = (hint, *typing.get_args(hint))
    words = [word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)]
    numbers = [3, 2] if int in parts else [0.5, 0.25] if float in parts else []
    holds = each.range.holds if getattr(each, "range", None) else lambda value: True
    candidates = [not each.default] if bool in parts else [*words, *filter(holds, numbers)]
    return next((value for value in candidates if value != each.default), None)


def cases():
    for name in RUNS:
        for each, hint in options(name):
            found = CASES.get(f"{name} {each.name}", CASES.get(each.name, {}))
            for number, case in enumerate(found if isinstance(found, list) else [found]):
                is_slow = name in SLOW and each.name in options_of(SLOW[name])
                yield pytest.param(
                    name,
                    each.name,
                    {each.name: other_value(each, hint)} | case,
                    id=f"{name}-{each.name}{number or ''}",
                    marks=[pytest.mark.slow] if is_slow else [],
                )


def flags_of(settings):
    for name, value in settings.items():
        if value is not None:
            yield f"--{name}"
            yield from map(str, value if isinstance(value, list) else [value])


def contents(path):
    """What a file of a result holds, without settings, times and names of paths."""
    if path.is_dir():
        return None
    if path.suffix == ".safetensors":
        return {name: array.tobytes() for name, array in load_file(path).items()}
    if path.name == "config.json":
        fields = json.loads(path.read_text())
        return [fields.get(key) for key in ("architectures", "id2label", "hidden_act")]
    if path.name == "trainer_state.json":
        log = json.loads(path.read_text())["log_history"]
        return [[item for item in entry.items() if MEASURED.match(item[0])] for entry in log]
    if path.name == "report.json":
        return {name: value for name, value in json.loads(path.read_text()).items() if name != "models"}
    return path.read_bytes()


runs = count()


@cache
def result_of(name, flags):
    """What a command writes, by file, from its flags; None if it rejects them."""
    place = Path(f"run_{next(runs)}")
    place.mkdir()
    ending = {"vocab": "", "data": ".safetensors", "evaluate": ".json", "compare": ".tsv"}.get(name, ".jsonl")
    in_file = "output" in options_of(KINDS[name])
    out = ["--output", f"{place}/out{ending}"] if in_file else ["--output_dir", f"{place}/out"]
    flags = [flag.replace("HERE", str(place)) for flag in flags]
    if cli.main([*name.split(), *flags, *out]):
        return None
    paths = [path for path in sorted(place.rglob("*")) if path.name not in RECORDS]
    in_checkpoints = [path for path in paths if path.parent.name.startswith("checkpoint-")]
    return {str(path.relative_to(place)): contents(path) for path in paths if path not in in_checkpoints}


@pytest.fixture(scope="module", autouse=True)
def workplace(tmp_path_factory, tiny_model, documents):
    """The current folder, with models and data; nothing is drawn, and comparisons measure no speed."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(comparison, "_MIN_SECONDS", 0.0)
        for module, name in ((run_folder, "training_curves"), (predictor, "confusion_picture")):
            patches.setattr(module, name, lambda *_: None)
        patches.chdir(folder)
        write_data(documents)
        write_models(tiny_model, documents)
        yield
    result_of.cache_clear()


def write_data(documents):
    lines = []
    for number, document in enumerate([*documents, documents[3]]):
        words = " ".join(document).split()
        lines += [f"{text.capitalize()}. The th\u00e0cat ran on {words[0]}{words[number % 7]}." for text in document]
        lines += [""] * (1 + (number % 5 == 0))
    greek = ["\u03b1\u03b2\u03b3 \u03b4\u03b5\u03b6."] * 4
    Path("pages.txt").write_text("\n".join(f"<p>{line} &amp; {line}</p>" if line else "" for line in lines))
    Path("text.txt").write_text("\n".join(["cat === dog", *lines, *greek]))
    Path("more.txt").write_text("\n".join(lines[100:]))
    texts = [text for document in documents for text in document]
    columns = "text other third label score labels mixed a b c".split()
    rows = []
    for row in range(24):
        label, labels = int(row % 3 == 0), ("a", "b", "a;b", "a;c")[row % 4]
        ends = label, row / 7, labels, labels.replace(";", "/"), row % 2, label, 1 - row % 2
        rows.append([*texts[row : row + 100 : 45], *ends])
    rows[0][0] += " th\u00e0cat"
    holes = [["", *rows[0][1:]], *rows[1:]]
    cola = [["x", row[3], "*", row[0]] for row in rows]
    of_glue = [["sentence", "label"], *([row[0], row[3]] for row in rows)]
    for name, table in (
        ("rows.tsv", [columns, *rows]),
        ("more.tsv", [columns, *rows[:16]]),
        ("holes.tsv", [columns, *holes]),
        ("null.tsv", [columns, *rows, [*rows[0][:3], "null", *rows[0][4:]]]),
        ("cola.tsv", cola),
        ("one/train.tsv", of_glue),
        ("one/dev.tsv", of_glue),
        ("two/train.tsv", of_glue[:16]),
        ("two/dev.tsv", of_glue),
    ):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("\n".join("\t".join(map(str, row)) for row in table) + "\n")
    lines = []
    for document in documents[:4]:
        lines += ["-DOCSTART- -X- O O", ""]
        for text in document:
            lines += [f"{word}s X X {('O', 'B-PER', 'I-PER')[len(word) % 3]}" for word in text.split()] + [""]
    Path("tags.conll").write_text("\n".join(lines))
    paragraphs = []
    for number, document in enumerate(documents[:6]):
        context = " ".join(document)
        words = context.split()
        start = len(" ".join(words[:4])) + 1
        found = [{"text": words[4], "answer_start": start}] if number % 3 else []
        question = {"question": "was the happy dog sad today", "id": f"q{number}", "answers": found}
        paragraphs.append({"context": context, "qas": [question | {"is_impossible": not found}]})
    Path("questions.json").write_text(json.dumps({"version": "2.0", "data": [{"paragraphs": paragraphs}]}))
    task = "{task: sst2, train_file: train.tsv, validation_file: dev.tsv}"
    Path("suite.yaml").write_text(f"tasks: {{first: {task}, second: {task}}}")
    Path("suite_2.yaml").write_text(f"tasks: {{first: {task}}}")
    Path("lora.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["query"]}))


def write_models(tiny_model, documents):
    known = {word for document in documents for text in document for word in text.split()}
    letters = {letter for word in known for letter in word}
    pieces = sorted({*known, ".", *letters, *(f"##{letter}" for letter in letters)})
    words, shuffled = (
        mybert.MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", *order])
        for order in (pieces, pieces[::-1])
    )
    shuffled.save_pretrained("shuffled")
    for name, text in (("one", documents), ("two", documents[:40])):
        build_token_store(text, words, f"{name}.safetensors", show_progress=False)
    size = {"words": words, "num_hidden_layers": 3, "num_attention_heads": 4, "initializer_range": 0.5}
    tiny_model(Path("pretrained"), **size)
    tiny_model(Path("other"), seed=1, **size)
    tiny_model(Path("bert"), BertForPreTraining, **size)
    for seed, ending in ((1, ""), (2, "_2")):
        tiny_model(Path(f"like_google{ending}"), seed=seed, hidden_act="gelu_pytorch_tanh", **size)
        export_google_checkpoint(f"like_google{ending}", f"google{ending}/")
    fields = json.loads(Path("google/bert_config.json").read_text())
    Path("relu.json").write_text(json.dumps(fields | {"hidden_act": "relu"}))
    for name, head, labels in (
        ("classes", mybert.MyBertForSequenceClassification, "01"),
        ("labels", mybert.MyBertForSequenceClassification, "abc"),
        ("values", mybert.MyBertForSequenceClassification, ["value"]),
        ("tags", mybert.MyBertForTokenClassification, ["O", "B-PER", "I-PER"]),
        ("questions", mybert.MyBertForQuestionAnswering, ()),
        ("choices", mybert.MyBertForMultipleChoice, ()),
    ):
        for seed, ending in ((1, ""), (2, "_2")):
            tiny_model(Path(name + ending), head, task=DATA[name][1], labels=labels, seed=seed, **size)


def test_lists_of_options_and_commands_are_those_of_today():
    known = {each.name: getattr(each, "decides", None) for name in RUNS for each in options_of(KINDS[name]).values()}
    assert {*RUNS, *OTHERS} == {*cli.COMMANDS}
    named = {word.rpartition(".")[2] for words in (*NEUTRAL, *ELSEWHERE.values()) for word in words.split()}
    assert {*named, *(case.rpartition(" ")[2] for case in CASES)} <= known.keys()
    assert not [name for name in NEUTRAL if known.get(name)], "an option that decides a result is not neutral"


def test_command_given_the_same_options_gives_the_same_result():
    for name in RUNS:
        flags = tuple(flags_of(RUNS[name]("classes")))
        assert result_of(name, flags) == result_of.__wrapped__(name, flags) != {}, name


@pytest.mark.parametrize(("name", "option", "case"), cases())
def test_command_given_another_value_of_an_option_gives_another_result(name, option, case):
    if option == "dtype" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bfloat16 kernels")
    if case[option] is None:
        pytest.fail(f"--{option} of {name} needs an entry in CASES with a value that changes the result.")
    base = RUNS[name](case.get("on", "classes"))
    settings = {key: value for key, value in case.items() if key not in ("on", "rejected")}
    usual, other = (
        {key: value[side] if isinstance(value, tuple) else value for key, value in settings.items()} for side in (0, 1)
    )
    if not isinstance(case[option], tuple):
        usual.pop(option)
    before, after = (result_of(name, tuple(flags_of(base | side))) for side in (usual, other))
    assert (before is None, after is None) == (case.get("rejected", False), False), "a run is rejected"
    assert before != after, f"--{option} {other[option]} of {name} changes nothing; see the top of this file."
