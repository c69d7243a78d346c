"""What is declared of the options of every command holds: ranges, choices, rules, and what decides a run's result."""

import math
import re
import sys
import typing
from types import SimpleNamespace

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments, trainer_optimizer

from mybert import MyBertForSequenceClassification, cli
from mybert.files.choices import choices_of
from mybert.files.errors import SettingError
from mybert.files.options import Group, contradicting, deciding, options_of, types_of
from mybert.files.settings import build
from mybert.finetuning import DistillationArguments, FinetuningArguments
from mybert.pretraining import AdaptArguments, PretrainingArguments
from mybert.runs.trainer_options import is_inherited, json_options

RUN = {"output_dir": "out", "use_cpu": True}
# Settings with which the arguments of a command can be created; TEACHER is a fine-tuned model.
BASES = {
    "vocab": {"text": ["t.txt"], "output_dir": "out"},
    "data": {"text": ["t.txt"], "tokenizer": "t", "output": "store"},
    "pretrain": {"text": ["t.txt"], "max_steps": 100, **RUN},
    "adapt": {"text": ["t.txt"], "model": "m", "new_pieces": 0, "max_steps": 100, **RUN},
    "bench": {"model": "TEACHER", "data": ["t.txt"]},
    "glue": {"model": "m", "data_dir": "d", "output_dir": "o"},
    "finetune": {"model": "m", "train_file": "t.tsv", **RUN},
    "distill": {"teacher": "TEACHER", "student": "tiny", "train_file": "t.tsv", **RUN},
    "evaluate": {"model": "owner/name", "data": ["t.tsv"]},
    "score": {"model": "TEACHER", "data": ["d"]},
    "predict": {"model": "owner/name", "data": ["t.tsv"]},
    "compare": {"models": ["owner/name", "owner/other"], "data": ["t.tsv"]},
    "features": {"model": "owner/name", "text": ["t.txt"], "output": "f.jsonl"},
    "convert onnx": {"model": "m", "output_dir": "o"},
    "convert openvino": {"model": "m", "output_dir": "o"},
    "card": {"model": "m"},
    "push": {"model": "m", "repo_id": "owner/name"},
    "attention": {"model": "m", "sentences": ["a"]},
    "completion": {"shell": "bash"},
}
KINDS = {name: command.load_settings() for name, command in cli.COMMANDS.items()}
# Functions that also check what a plan would.
MAKERS = {
    "pretrain": PretrainingArguments,
    "adapt": AdaptArguments,
    "finetune": FinetuningArguments,
    "distill": DistillationArguments,
}
VALUES = {
    "weights": [1.0],
    "lr_scheduler_kwargs": '{"power": 2.0}',
    **dict.fromkeys(json_options() - {"lr_scheduler_kwargs"}, "{}"),
    "clean": ["html"],
    "max_length": 16,
    "random_replace_prob": 0.05,
    "filter": ["duplicates"],
}
# Range in words -> the values at its edges, those within and those outside.
EDGES = {
    "a fraction in [0, 1]": ([0, 1], [-0.01, 1.01]),
    "a fraction above 0, up to 1": ([0.01, 1], [0, 1.01]),
    "a fraction in [0, 1)": ([0, 0.99], [-0.01, 1]),
    "a fraction in (0, 1), or 0 for none": ([0, 0.99], [-0.01, 1]),
    "a fraction from 0 to 0.5": ([0, 0.5], [-0.01, 0.51]),
    "a number above 0": ([0.01], [0, math.inf]),
    "at least 0": ([0], [-1]),
    "at least 0, or -1 for none": ([-1], [-2]),
    "at least 1": ([1], [0]),
    "at least 2, or 0 for none": ([0, 2], [-1, 1]),
    "at least 3: [CLS], [SEP] and some text": ([3], [2]),
    "a whole number from 0 to 4294967295": ([0, 4294967295], [-1, 4294967296]),
}
REFUSED = "but a new student .* is a plain MyBERT; leave it out"


def options(name):
    """The options of a command, those of transformers too, and their types."""
    hints = types_of(KINDS[name])
    return [(each, hints[each.name]) for each in options_of(KINDS[name]).values() if each.init]


def words_of(hint):
    parts = (hint, *typing.get_args(hint))
    return [word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)]


def value_of(name, each, hint):
    """A value of an option that is not its default."""
    if each.name in VALUES:
        return VALUES[each.name]
    if each.name in BASES.get(name, {}):
        return BASES[name][each.name]
    words, parts = words_of(hint), (hint, *typing.get_args(hint))
    if bool in parts:
        return not each.default
    holds = each.range.holds if getattr(each, "range", None) else lambda value: True
    numbers = [3, 2, 0.5] if int in parts else [0.5, 0.25, 2.0] if float in parts else []
    candidates = [*words, *filter(holds, numbers), ["x"] if "list[str]" in str(hint) else "x"]
    return next(value for value in candidates if value != each.default)


def named_by(name, options):
    """The names of the alternatives to which options belong, where it is not the usual one."""
    names = {}
    for each in choices_of(KINDS[name]).values():
        owners = [part.name for part in each.alternatives if set(part.options) & set(options)]
        if each.flag and owners and each.alternatives[0].name not in owners:
            names[each.flag] = owners[0]
    return names


def made(name, folder, **settings):
    base = {key: folder if value == "TEACHER" else value for key, value in BASES.get(name, {}).items()}
    gone = contradicting(KINDS[name], settings)
    settings = named_by(name, settings) | settings
    given = {key: value for key, value in base.items() if key not in gone} | settings
    return MAKERS[name](**given) if name in MAKERS else build(KINDS[name], given)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, tiny_model):
    return str(tiny_model(tmp_path_factory.mktemp("teacher"), MyBertForSequenceClassification))


@pytest.mark.parametrize("name", BASES)
def test_bases_can_be_made(name, teacher):
    made(name, teacher)


def out_of_range():
    for name in KINDS:
        for each, hint in options(name):
            if limits := getattr(each, "range", None):
                yield name, each.name, EDGES[limits.expected][1][0], limits.expected
            elif words := [word for word in words_of(hint) if word != each.default]:
                yield name, each.name, "?", str(words[0])


def test_ranges_hold_at_their_edges():
    for limits in {limits for name in KINDS for each, _ in options(name) if (limits := getattr(each, "range", None))}:
        within, outside = EDGES[limits.expected]
        assert list(filter(limits.holds, [*within, *outside, math.nan])) == within, limits.expected


@pytest.mark.parametrize(("name", "option", "value", "expected"), out_of_range())
def test_values_out_of_range_are_refused(name, option, value, expected, teacher):
    given = [value] if "list" in str(types_of(KINDS[name])[option]) else value
    with pytest.raises(SettingError) as error:
        made(name, teacher, **{option: given})
    assert error.value.option == option and error.value.value in (value, given)
    assert expected in str(error.value) or re.search(REFUSED, str(error.value))


def rules(*kinds):
    for name in KINDS:
        known = {each.name: (each, hint) for each, hint in options(name)}
        for each, hint in known.values():
            for kind in kinds:
                for part in (getattr(each, kind, None) or "").split():
                    other, _, value = part.partition("=")
                    if other in known:
                        yield (
                            name,
                            kind,
                            each.name,
                            value_of(name, each, hint),
                            other,
                            value or value_of(name, *known[other]),
                        )


@pytest.mark.parametrize(("name", "kind", "option", "value", "other", "its"), rules("excludes"))
def test_options_that_contradict_each_other_are_refused(name, kind, option, value, other, its, teacher):
    if other not in BASES[name] and option in contradicting(KINDS[name], BASES[name]):
        pytest.skip("the option never is there")
    with pytest.raises(SettingError) as error:
        made(name, teacher, **{option: value, other: its})
    assert sorted(error.value.options[:2]) == sorted([option, other]) or re.search(REFUSED, str(error.value))
    # a flag replaces what a settings file says
    assert option in contradicting(KINDS[name], {other: its})
    assert other in contradicting(KINDS[name], {option: value})


@pytest.mark.parametrize(("name", "kind", "option", "value", "other", "its"), rules("needs"))
def test_options_without_what_they_need_are_refused(name, kind, option, value, other, its, teacher):
    if other in BASES[name] or option in contradicting(KINDS[name], BASES[name]):
        pytest.skip("it is always there, or the option never is")
    with pytest.raises(SettingError) as error:
        made(name, teacher, **{option: value})
    assert error.value.options[:2] == (option, other)


@pytest.mark.parametrize(("name", "kind", "option", "value", "other", "its"), rules("replaces"))
def test_flags_replace_what_counts_the_same(name, kind, option, value, other, its):
    assert other in contradicting(KINDS[name], {option: value})
    assert option in contradicting(KINDS[name], {other: its})


@pytest.mark.parametrize("name", ["pretrain", "adapt", "finetune", "distill"])
def test_records_hold_what_decides_the_result(name, teacher):
    unchanged = made(name, teacher)
    usual = deciding(unchanged)
    for each, hint in options(name):
        decides = getattr(each, "decides", None) or False
        value = getattr(unchanged, each.name) if each.name in BASES[name] else value_of(name, each, hint)
        changed = deciding(unchanged, {each.name: value})
        assert (each.name in usual) is (decides is True or (decides and value == each.default)), each.name
        assert (each.name in changed) is bool(decides), each.name
        assert not decides or changed[each.name] == value, each.name


def test_rules_name_options():
    known = {each.name for name in KINDS for each, _ in options(name)}
    for name in KINDS:
        for each, _ in options(name):
            for kind in ("needs", "excludes", "replaces"):
                named = {part.partition("=")[0] for part in (getattr(each, kind, None) or "").split()}
                assert named <= known, (each.name, named - known)


@pytest.mark.parametrize("name", KINDS)
def test_options_of_our_own_are_in_a_group_of_the_help(name):
    for each, _ in options(name):
        assert is_inherited(each) or isinstance(each.group, Group), each.name


OF_ALL_TRAINING = [
    ({"max_steps": 0}, "max_steps is 0; expected at least 1"),
    ({"max_steps": -1, "num_train_epochs": 0}, "num_train_epochs is 0; expected a number above 0"),
    ({"do_train": False, "do_predict": True}, "do_train is False; mybert evaluate measures"),
    ({"save_steps": 10, "save_strategy": "epoch"}, "save_steps is 10 and save_strategy is 'epoch'; pass"),
    ({"accelerator_config": {"dispatch_batches": True}}, "accelerator_config has dispatch_batches, by which one"),
    ({"lr_scheduler_type": "warmup_stable_decay"}, "lr_scheduler_type is 'warmup_stable_decay' .*num_decay_steps"),
    ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"end": 1}}, "lr_scheduler_type is 'cosine' .*'end': 1"),
    ({"lr_scheduler_kwargs": {"lr_end": 1e-5}}, "lr_scheduler_kwargs is .*the linear schedule takes none"),
    ({"lr_scheduler_kwargs": "power=2"}, "lr_scheduler_kwargs is 'power=2'; expected a JSON object."),
    ({"lr_scheduler_kwargs": '{"power": '}, "lr_scheduler_kwargs is '{\"power\": ', which is not JSON"),
    ({"optim": "adamw_torch", "optim_args": "rank:3"}, "optim_args is 'rank:3'; expected name=value, several"),
    ({"optim": "adamw_torch", "optim_args": "a=b=c"}, "optim_args is 'a=b=c'; expected name=value, several"),
    ({"optim": "adamw_torch", "optim_args": "rank=3"}, "optim_args has rank, which the optimizer does not read"),
    ({"optim": "sgd", "optim_args": "momentum=0.0, momentun=0.9"}, "optim_args has momentun, which the optimizer"),
    ({"optim": "sgd", "optim_args": "momentum=high"}, "optim is 'sgd' with optim_args 'momentum=high', which does"),
    ({"optim": "lambda"}, "optim is 'lambda'; expected one of google, adamw, muon, or one of transformers'"),
    ({"optim": "muon", "optim_args": "rank=3"}, "optim_args has rank, which the optimizer does not read"),
    ({"optim": "galore_adamw"}, "optim is 'galore_adamw' without optim_target_modules; expected the layers"),
    ({"optim_target_modules": ["attn"]}, r"optim_target_modules is \['attn'\], which only .* galore and apollo"),
    ({"torch_compile_mode": "fast"}, "torch_compile_mode is 'fast'; expected one of default, "),
    ({"torch_compile_backend": "fast"}, "torch_compile_backend is 'fast'; expected one of .*inductor, "),
    ({"report_to": ["tensorboard", "paper"]}, "report_to is 'paper'; expected none, all or .*wandb"),
    ({"fsdp_config": {"version": 2}}, "fsdp_config is set without fsdp"),
    ({"fsdp": True, "fsdp_config": {"state_dict_type": "x"}}, "fsdp_config has a value that does not fit .*X"),
    ({"fsdp": True, "accelerator_config": "missing.json"}, "accelerator_config is 'missing.json'; expected a JSON"),
    ({"fsdp": True, "fsdp_config": "missing.json"}, "fsdp_config is 'missing.json'; expected a JSON object or a file"),
    ({"fsdp": True, "deepspeed": "missing.json"}, "deepspeed is 'missing.json'; expected a JSON object or a file"),
    ({"accelerator_config": {"even": True}}, "accelerator_config has even; expected some of .*even_batches"),
]
OF_PRETRAINING = [
    ({"eval_steps": 10, "eval_strategy": "epoch"}, "eval_steps is 10 and eval_strategy is 'epoch'; pass"),
    ({"causal_share": 0.4, "max_steps": -1}, "max_steps is not set; a causal start"),
    ({"causal_share": 0.95, "phase2_max_length": 256}, "causal_share is 0.95 and .*leave nothing of max_steps"),
    ({"causal_share": 0.96, "max_steps": 10}, "causal_share is 0.96 and max_steps 10; .*leave nothing of max_steps"),
    ({"batch_ramp": 0.2}, "batch_ramp is 0.2, .* gradient_accumulation_steps 1; a batch grows"),
    ({"batch_ramp": 0.2, "gradient_accumulation_steps": 4, "max_steps": -1}, "batch_ramp is 0.2, with max_steps -1"),
    (
        {"batch_ramp": 0.95, "gradient_accumulation_steps": 4, "phase2_max_length": 256},
        r"batch_ramp is 0\.95 and phase2",
    ),
    ({"phase2_max_length": 64, "max_steps": -1}, "max_steps is not set"),
    ({"phase2_max_length": 64, "phase2_steps": 100}, "phase2_steps is 100; expected"),
    ({"max_hours": math.inf}, "max_hours is inf; expected a number above 0"),
    ({"max_hours": 1.0, "max_steps": 10}, "max_hours is 1.0 and max_steps 10; use either max_hours or max_steps"),
    ({"max_hours": 1.0, "warmup_steps": 100.0}, r"warmup_steps is 100\.0; expected a fraction below 1 of max_hours"),
    ({"max_hours": 1.0, "phase2_max_length": 256, "phase2_steps": 100}, "phase2_steps is 100; expected a fraction"),
    ({"max_hours": 1.0, "save_steps": 0.1}, r"save_steps is 0\.1; with max_hours the total number"),
    ({"max_hours": 1.0, "lr_scheduler_type": "cosine"}, "lr_scheduler_type is 'cosine'; with max_hours only 'linear'"),
    ({"row_length": 512}, "row_length is 512 without pack, so it has no effect"),
    ({"text": [], "token_store": "s", "tokenizer": "t", "clean": ["html"]}, "clean .* token_store 's', whose text"),
    ({"text": []}, "text is not set; expected: Text to train on: .* Or give token_store."),
    ({"text": ["-"]}, "text is '-', standard input"),
    ({"output_dir": None}, "output_dir is not set"),
    ({"model_size": "huge"}, "model_size is 'huge'; expected one of tiny, mini"),
    ({"model_size": "0x64"}, "model_size is '0x64'; expected at least 1 layer"),
    ({"max_length": 4}, "max_length is 4"),
    ({"phase2_max_length": 3}, "max_length is 3"),
    ({"phase2_steps": 20}, "phase2_steps is 20 without phase2_max_length, so it has no effect"),
    ({"phase2_per_device_train_batch_size": 8}, "phase2_per_device_train_batch_size is 8 without phase2_max_length"),
    ({"phase2_gradient_accumulation_steps": 2}, "phase2_gradient_accumulation_steps is 2 without phase2_max_length"),
    ({"pack": True, "row_length": 20}, "row_length is 20, less than max_length 128"),
    ({"muon_learning_rate": 0.01}, "muon_learning_rate is 0.01 without optim 'muon', so it has no effect"),
    ({"mask_replace_prob": 0.95}, "mask_replace_prob .*add up to more than 1"),
    ({"dataloader_drop_last": True}, "dataloader_drop_last is .* an epoch ends with its last whole batch in any case"),
    ({"metric_for_best_model": "f1"}, "metric_for_best_model is 'f1'; expected one of loss, .*, nsp_accuracy"),
    ({"objective": "mlm", "metric_for_best_model": "nsp_loss"}, "metric_for_best_model is .*; .*, perplexity"),
    ({"save_only_model": True}, "save_only_model is set; resuming, and starting a second phase, needs complete"),
    ({"save_strategy": "best"}, "save_strategy is 'best', which leaves out checkpoints"),
    ({"do_predict": True}, "do_predict is True; pretraining predicts nothing"),
    ({"do_eval": True, "validation_split": 0}, "do_eval is set and validation_split is 0"),
    ({"label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1; mybert pretrain ignores it"),
    ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy is .*; mybert pretrain ignores it"),
    ({"use_liger_kernel": True}, "use_liger_kernel is True; mybert pretrain ignores it"),
]
OF_FINETUNING = [
    (
        {"task": "sst3"},
        "task is 'sst3'; for labels of your own use classification. Expected one of classification, .*, cola, ",
    ),
    ({"model": ""}, "model is not set"),
    (
        {"train_file": None},
        r"train_file is not set; expected: Training data \(.*\)\. Or give data_dir or dataset or class_names\.",
    ),
    (
        {"model": "", "train_file": None},
        r"model and train_file \(or data_dir or dataset or class_names\) are not set\.$",
    ),
    ({"num_seeds": 2}, "num_seeds is 2 without validation data"),
    (
        {"label_columns": ["x", "y"]},
        "label_columns are for tasks of several labels or numbers; this one has a label_column",
    ),
    ({"task": "multilabel", "label_columns": ["x", "x"]}, "label_columns names 'x' twice; expected different"),
    ({"n_best_size": 3}, "n_best_size is not a setting of the task classification"),
    ({"doc_stride": 3}, "doc_stride is set without window_pooling"),
    *(
        ({"task": "squad", name: 0}, f"{name} is 0; expected at least 1")
        for name in ("n_best_size", "max_question_length", "max_answer_length")
    ),
    ({"task": "regression", "label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1; expected a task in which"),
    ({"task": "multilabel", "label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1; expected a task in which"),
    ({"task": "squad", "label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1; expected a task in which"),
    ({"load_best_model_at_end": True}, "load_best_model_at_end is True, but nothing is evaluated; give a"),
    ({"train_file": None, "data_dir": "nowhere"}, "data_dir is 'nowhere', which is not a folder"),
    ({"do_predict": True}, r"do_predict is set without test data \(test_file\)"),
    ({"do_eval": True}, r"do_eval is set without validation data \(validation_file\)"),
    ({"save_strategy": "best"}, "save_strategy is 'best' but nothing is evaluated"),
    ({"validation_split": 0.1, "save_strategy": "best", "eval_strategy": "no"}, "save_strategy is 'best' but nothing"),
    ({"early_stopping_patience": 2}, "early_stopping_patience is 2, but nothing is evaluated; give"),
    ({"early_stopping_patience": 2, "validation_split": 0.1, "save_strategy": "no"}, ".*saved by 'no'"),
    ({"task": "regression", "class_weights": "balanced"}, "class_weights is 'balanced'; expected a task in which"),
    ({"label_separator": ";"}, "label_separator is for the task multilabel"),
    ({"approach": "linear_probe", "task": "ner"}, "approach is 'linear_probe' and task 'ner'; expected a task that"),
    ({"approach": "auto", "validation_split": 0.1}, "approach is 'auto' with validation data; it compares by folds"),
    ({"approach": "contrastive", "task": "ner"}, "approach is 'contrastive' and task 'ner'; expected a task that"),
    ({"approach": "contrastive", "early_stopping_patience": 1}, "early_stopping_patience is 1 with approach 'contras"),
    (
        {"class_names": ["a", "b"]},
        "train_file is 't.tsv' with class_names .*, which stand in for labeled texts; leave it",
    ),
    ({"class_names": ["a", "b"], "train_file": None, "folds": 3}, "folds is 3 with class_names"),
    ({"class_names": ["a", "a"], "train_file": None}, "class_names is .'a', 'a'.; expected at least two different"),
    ({"class_names": ["a", "b"], "train_file": None, "task": "ner"}, "class_names is set and task is 'ner'; expected"),
    (
        {"class_names": ["a", "b"], "train_file": None, "label_template": "About"},
        "label_template is 'About'; expected a text with {}",
    ),
    ({"label_template": "About {}"}, "label_template is 'About {}' without class_names"),
    ({"approach": "linear_probe", "learning_rate": 1e-4}, "learning_rate is 0.0001 with approach 'linear_probe'"),
    ({"approach": "linear_probe", "lora": True}, ".*lora"),
]
OF_OTHERS = [
    ("data", {"tokenizer": None}, "tokenizer is not set"),
    ("data", {"output": None}, "output is not set"),
    ("data", {"text": [], "dry_run": True}, "dry_run is set and text is not"),
    ("compare", {"task": "sst2", "max_question_length": 9}, "max_question_length is not a setting of .* sst2"),
    ("features", {"features": "first"}, "features is 'first'; expected one of embeddings"),
    ("features", {"output": "f.txt"}, "output is 'f.txt'; expected a name that ends in .jsonl or .safetensors"),
    ("features", {"features": "last", "weights": [1.0]}, "weights are given, but last is not a weighted sum"),
]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        *(("pretrain", *row) for row in OF_ALL_TRAINING + OF_PRETRAINING),
        *(("finetune", *row) for row in OF_ALL_TRAINING + OF_FINETUNING),
        *OF_OTHERS,
    ],
)
def test_settings_that_nothing_declares_are_refused(name, settings, message):
    HfArgumentParser(TrainingArguments)  # as commands do: it changes the types of the fields
    with pytest.raises(ValueError, match=f"^{message}"):
        made(name, "", **settings)


def test_optimizers_of_a_missing_package_are_refused_and_those_of_a_model_wait_for_it(monkeypatch):
    settings = {"optim": "galore_adamw", "optim_target_modules": ["attention"]}
    with pytest.raises(ImportError, match="install `galore_torch`"):
        made("finetune", "", **settings)
    monkeypatch.setattr(trainer_optimizer, "is_galore_torch_available", lambda: True)
    classes = dict.fromkeys(("GaLoreAdafactor", "GaLoreAdamW", "GaLoreAdamW8bit"))
    monkeypatch.setitem(sys.modules, "galore_torch", SimpleNamespace(**classes))
    assert made("finetune", "", **settings).optim == "galore_adamw"


def test_optimizer_settings_that_are_names_are_known(monkeypatch):
    package = SimpleNamespace(AnyPrecisionAdamW=torch.optim.AdamW)
    monkeypatch.setitem(sys.modules, "torchdistx", package)
    monkeypatch.setitem(sys.modules, "torchdistx.optimizers", package)
    settings = {"optim": "adamw_anyprecision", "optim_args": "momentum_dtype=bfloat16"}
    assert made("finetune", "", **settings).optim_args == "momentum_dtype=bfloat16"
    with pytest.raises(ValueError, match="optim_args has momentum_type, which the optimizer does not read"):
        made("finetune", "", **settings | {"optim_args": "momentum_type=bfloat16"})
