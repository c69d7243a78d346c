"""Settings of `TrainingArguments` without effect are rejected, not ignored."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import transformers
from transformers import TrainingArguments

from mybert.files.errors import SettingError
from mybert.finetuning import FinetuningArguments
from mybert.pretraining import PretrainingArguments, PretrainPlan, plan_pretraining
from mybert.runs import suggest_bfloat16, trainer_arguments, training_settings

# Read by `TrainingArguments` itself: devices, precision, processes and logging are set up there.
_READ_BY_ITSELF = {"tf32", "use_cpu", "log_level", "log_level_replica", "log_on_each_node", "ddp_backend"}
_READ_BY_ITSELF |= {"ddp_timeout", "per_device_eval_batch_size", "gradient_checkpointing"}
_READ_BY_ITSELF |= {"gradient_checkpointing_kwargs"}
UNSUPPORTED = training_settings.UNSUPPORTED
# Settings for scripts: those of mybert reject them if they behave differently.
_FOR_SCRIPTS = {"do_train", "do_eval", "do_predict"}


def planned(**settings) -> PretrainPlan:
    return plan_pretraining(PretrainingArguments(**{"text": ["x"], "output_dir": "out", "use_cpu": True} | settings))


def pretraining(**settings) -> TrainingArguments:
    return planned(**settings).training


@pytest.mark.parametrize(
    ("use_cpu", "cores", "processes", "workers"),
    [(True, 16, 1, 0), (False, 16, 1, 4), (False, 16, 8, 1), (False, 4, 2, 1), (False, 2, 2, 0), (False, 3, 1, 2)],
)
def test_training_settings_with_a_gpu_load_batches_for_the_device_in_use(
    monkeypatch, use_cpu, cores, processes, workers
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(trainer_arguments, "usable_cores", lambda: cores)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setattr(TrainingArguments, "device", torch.device("cpu"))  # there is no GPU
    monkeypatch.setattr(TrainingArguments, "n_gpu", 1)
    made = pretraining(use_cpu=use_cpu)
    assert (made.dataloader_num_workers, made.dataloader_pin_memory) == (workers, not use_cpu)
    given = pretraining(use_cpu=use_cpu, dataloader_num_workers=3, dataloader_pin_memory=False)
    assert (given.dataloader_num_workers, given.dataloader_pin_memory) == (3, False)


@pytest.mark.parametrize("pinned", [True, False])
def test_pinned_batches_are_copied_without_waiting(pinned):
    assert pretraining(dataloader_pin_memory=pinned).accelerator_config.non_blocking is pinned
    given = pretraining(dataloader_pin_memory=pinned, accelerator_config={"non_blocking": not pinned})
    assert given.accelerator_config.non_blocking is not pinned


def finetuning(tmp_path, **settings):
    file = tmp_path / "train.tsv"
    file.write_text("text\tlabel\na\t1\n")
    return FinetuningArguments(
        **{"model": "x", "output_dir": "out", "train_file": str(file), "use_cpu": True} | settings
    )


def test_every_setting_that_transformers_leaves_to_scripts_is_known_here():
    folder = Path(transformers.__file__).parent
    files = [*folder.glob("trainer*.py"), *folder.glob("integrations/*.py"), folder / "optimization.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    names = [option.name for option in fields(TrainingArguments)]
    unread = {name for name in names if not re.search(rf"args\.{name}\b|[\"']{name}[\"']", source)}
    assert unread <= _READ_BY_ITSELF | _FOR_SCRIPTS | set(UNSUPPORTED)


VALUES = {
    **dict.fromkeys(("push_to_hub", "prediction_loss_only", "batch_eval_metrics", "enable_jit_checkpoint"), True),
    **dict.fromkeys(("hub_always_push",), True),
    **dict.fromkeys(("eval_do_concat_batches", "remove_unused_columns"), False),
    "resume_from_checkpoint": "out/checkpoint-3",
    "hub_model_id": "owner/name",
    "hub_token": "hf_secret",
    "hub_strategy": "end",
    "hub_revision": "main",
    "include_for_metrics": ["inputs"],
    "label_names": ["labels"],
    "length_column_name": "size",
    "local_rank": 3,
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_training_settings_unsupported_is_an_error(tmp_path, name):
    for make in (pretraining, lambda **settings: finetuning(tmp_path, **settings)):
        with pytest.raises(SettingError) as error:
            make(**{name: VALUES[name]})
        assert error.value.option == name and "secret" not in str(error.value)


def test_training_settings_do_train_and_the_like_are_accepted(tmp_path):
    file = tmp_path / "dev.tsv"
    file.write_text("text\tlabel\na\t1\n")
    finetuning(
        tmp_path, do_train=True, do_eval=True, do_predict=True, validation_file=[str(file)], test_file=[str(file)]
    )
    pretraining(do_train=True, do_eval=True)


def test_steps_of_evaluations_that_do_not_take_place(caplog):
    pretraining(eval_steps=10)  # not an error: set in a recipe, switched off on the command line
    assert "eval_strategy is 'no': nothing is evaluated" in caplog.text


@pytest.mark.parametrize("setting", ["bf16", "bf16_full_eval"])
def test_bfloat16_on_a_machine_that_has_only_a_cpu(setting, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = pretraining(use_cpu=False, **{setting: True})
    assert arguments.use_cpu and arguments.device.type == "cpu"
    assert not pretraining(use_cpu=False).use_cpu


@pytest.mark.parametrize(
    ("features", "settings", "says"),
    [
        (("AVX-512 BF16",), {}, "(AVX-512 BF16): with --bf16"),
        (("AVX-512 BF16", "AMX"), {}, "(AVX-512 BF16, AMX): with --bf16"),
        (("AVX-512 BF16",), {"bf16": True}, None),
        ((), {}, None),
    ],
)
def test_bfloat16_is_suggested_where_it_pays(features, settings, says, monkeypatch, caplog):
    monkeypatch.setattr(trainer_arguments, "bfloat16_features", lambda: features)
    trainer_arguments._log_once.cache_clear()
    arguments = pretraining(use_cpu=True, **settings)
    with caplog.at_level("INFO", trainer_arguments.__name__):
        suggest_bfloat16(arguments)
    assert (says in caplog.text) if says else not caplog.text


@pytest.mark.parametrize(
    ("has_bfloat16", "settings", "says"), [(True, {}, True), (True, {"bf16": True}, False), (False, {}, False)]
)
def test_suggest_bfloat16_on_a_gpu_names_the_flags(has_bfloat16, settings, says, monkeypatch, caplog):
    arguments = pretraining(use_cpu=True, **settings)
    monkeypatch.setattr(type(arguments), "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    with caplog.at_level("INFO", trainer_arguments.__name__):
        suggest_bfloat16(arguments)
    assert ("This GPU multiplies in bfloat16: with --bf16" in caplog.text) is says


@pytest.mark.parametrize(("setting", "value", "package"), [
    ("optim", "adamw_bnb_8bit", "bitsandbytes"), ("report_to", "clearml", "clearml"),
])  # fmt: skip
def test_a_package_that_is_missing(setting, value, package):
    if importlib.util.find_spec(package) is not None:
        pytest.skip("it is there")
    with pytest.raises(ImportError, match=package):
        pretraining(**{setting: value})


def test_a_file_of_settings_is_read_at_once(tmp_path):
    file = tmp_path / "accelerator.json"
    for content, message in (("[]", "holds a JSON list"), ("{", "is not JSON"), ('{"even": 1}', "has even; expected")):
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            pretraining(use_cpu=True, accelerator_config=str(file))
    file.write_text('{"even_batches": false}')
    assert not pretraining(use_cpu=True, accelerator_config=str(file)).accelerator_config.even_batches


def test_half_precision_on_a_cpu_is_none(caplog):
    pretraining(use_cpu=True, fp16=True)
    assert "fp16 is set and has no effect on a CPU: this run computes in float32" in caplog.text


@pytest.mark.parametrize(
    ("launcher", "settings", "expected"),
    [
        ("bf16", {}, (True, False)),
        ("fp16", {}, (False, True)),
        ("no", {"bf16": True}, (True, False)),
        ("bf16", {"fp16": True}, (False, True)),
    ],
)
def test_the_precision_that_a_launcher_asks_for_is_on_record(launcher, settings, expected, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launcher)
    plan = planned(use_cpu=True, **settings)
    assert (plan.training.bf16, plan.training.fp16) == expected
    assert (plan.result_settings()["bf16"], plan.result_settings()["fp16"]) == expected


@pytest.mark.parametrize("features", [(), ("AMX",)])
def test_bfloat16_where_the_processor_multiplies_it(features, monkeypatch):
    monkeypatch.setattr(trainer_arguments, "bfloat16_features", lambda: features)
    assert pretraining(use_cpu=True, bf16="auto").bf16 is bool(features)
    assert pretraining(use_cpu=True, bf16="auto", fp16=True).bf16 is False
    with pytest.raises(SettingError) as error:
        pretraining(bf16="always")
    assert (error.value.option, error.value.value) == ("bf16", "always")


@pytest.mark.parametrize("on_gpu", [True, False])
def test_bfloat16_where_the_gpu_multiplies_it(on_gpu, monkeypatch):
    monkeypatch.setattr(trainer_arguments, "bfloat16_features", lambda: ("AMX",) if not on_gpu else ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **kwargs: on_gpu)
    assert trainer_arguments._multiplies_bfloat16(uses_gpu=True) is on_gpu
    assert trainer_arguments._multiplies_bfloat16(uses_gpu=False) is not on_gpu
