"""Every recipe is read as the command reads it."""

from pathlib import Path

import pytest
import torch

from mybert.command_line.flags import parse_flags
from mybert.pretraining import MODEL_SIZES, PretrainingTrainer, PretrainSettings, plan_pretraining, pretrain
from mybert.pretraining.plan import model_config
from mybert.runs import TICKS
from mybert.studies import suite

RECIPES = sorted((Path(__file__).resolve().parents[2] / "pretraining" / "recipes").glob("*.yaml"))
PRETRAINING = [path for path in RECIPES if not path.stem.startswith(("ablation", "glue"))]


def load(path, *flags) -> PretrainSettings:
    flags = ["--config", str(path), "--text", "corpus", "--output_dir", "out", "--use_cpu", *flags]
    return parse_flags("pretrain", flags)


def test_the_recipes_are_there():
    assert {path.stem for path in RECIPES} >= {
        *("base", "budget_24h", "two_phase", "laptop_10_minutes", "laptop_1_hour", "gpu_1_hour"),
        *("ablation", "ablation_small", "ablation_sizes", "ablation_short_runs", "glue_grid"),
    }


def test_the_grid_of_the_recipe_has_settings_of_fine_tuning(tmp_path):
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).touch()
    flags = f"m --config glue_grid --suite laptop --only sst2 --data_dir {tmp_path} --output_dir out"
    arguments = parse_flags("glue", flags.split())
    trials = [suite.trial_plan(arguments, "sst2", chosen) for chosen in arguments.combinations()]
    settings = [trial.settings for trial in trials]
    assert len({(s.learning_rate, s.embedding_learning_rate, s.dropout) for s in settings}) == 8
    with pytest.raises(ValueError, match="glue_grid is a recipe of mybert glue; mybert finetune has no recipes"):
        parse_flags("finetune", ["--config", "glue_grid"])


@pytest.mark.parametrize("path", PRETRAINING, ids=lambda path: path.stem)
def test_a_recipe_is_read_whole(path, tokenizer):
    arguments = load(path)
    plan = plan_pretraining(arguments)
    assert plan.max_steps > 0
    assert model_config(plan, len(tokenizer)).num_hidden_layers >= 2
    assert f"--config {path.stem} " in path.read_text()
    length = "max_steps" if arguments.max_hours is None else "max_hours"
    assert getattr(load(path, f"--{length}", "17"), length) == 17  # flags win


@pytest.mark.parametrize("size", MODEL_SIZES)
def test_sizes_have_the_papers_values(size, tokenizer):
    arguments = load("base", "--model_size", size)
    plan = plan_pretraining(arguments)
    assert arguments.model_size == size
    first, second = plan.phases
    assert (first.max_length, first.last_step, second.max_length) == (128, 900_000, 512)
    assert [plan.batch_size(phase) for phase in (first, second)] == [256, 256]
    assert (arguments.max_steps, arguments.warmup_steps, arguments.learning_rate) == (1_000_000, 10_000, 1e-4)
    assert (arguments.optim, arguments.weight_decay, arguments.adam_epsilon) == ("google", 0.01, 1e-6)
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.max_grad_norm) == (0.9, 0.999, 1.0)
    config = model_config(plan, len(tokenizer))
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert config.max_position_embeddings == 512


def test_the_budget_recipe_sees_4096_sequences_a_step_on_eight_devices():
    arguments = load("budget_24h", "--bf16", "false")
    plan = plan_pretraining(arguments)
    rows = 8 * plan.batch_size(plan.phases[0])
    assert rows * arguments.row_length // arguments.max_length == 4096


def test_the_rate_of_the_budget_recipe_ends_at_2_percent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a trainer makes its folder
    arguments = load("budget_24h", "--bf16", "false", "--max_steps", "100", "--eval_strategy", "no")
    trainer = PretrainingTrainer(model=torch.nn.Linear(2, 2), args=arguments)
    trainer.create_optimizer()
    schedule = trainer.create_scheduler(100)
    rates = []
    for _ in range(101):
        rates.append(schedule.get_last_lr()[0])
        trainer.optimizer.step()
        schedule.step()
    assert rates[6] == max(rates) == 5e-4
    assert rates[53] == pytest.approx(5e-4 * 0.51)  # half-way down
    assert rates[100] == pytest.approx(5e-4 * 0.02)


def test_the_batches_of_an_hour_on_a_gpu_grow_from_512_to_2048_sequences():
    arguments = load("gpu_1_hour")
    plan = plan_pretraining(arguments)
    phases = plan.phases
    sequences = [plan.batch_size(phase) * arguments.row_length // arguments.max_length for phase in phases]
    assert sequences == [512, 1024, 2048]
    assert [phase.last_step for phase in phases] == [TICKS * 75 // 1000, TICKS * 15 // 100, None]
    assert (arguments.optim, arguments.learning_rate, arguments.adam_beta2) == ("muon", 1e-3, 0.98)
    assert (arguments.embedding_init, arguments.mlm_probability) == ("cooccurrence", 0.4)
    assert (arguments.warmup_steps, arguments.max_grad_norm, arguments.dropout) == (0.06, 1.0, 0.0)
    assert arguments.bf16 and arguments.torch_compile and arguments.pack


def test_a_recipe_of_packed_rows_may_be_used_without_them():
    arguments = load("gpu_1_hour", "--pack", "false")
    assert (arguments.pack, arguments.row_length) == (False, None)


@pytest.mark.slow
def test_an_hour_on_a_gpu_runs_small(text_file, tmp_path, history):
    """Everything in the recipe but size, time and compilation."""
    small = "--num_hidden_layers 1 --hidden_size 16 --num_attention_heads 2 --vocab_size 90 --vocab_layout compact"
    data = "--max_length 24 --row_length 48 --per_device_train_batch_size 1 --validation_split 0.3 --num_processes 1"
    run = "--max_hours 0.0004 --torch_compile_backend eager --disable_tqdm true --logging_steps 1 --save_strategy no"
    place = ["--text", str(text_file), "--output_dir", str(tmp_path / "out")]
    assert pretrain(load("gpu_1_hour", *place, *f"{small} {data} {run}".split()))["eval_perplexity"] > 1
    assert any("mlm_loss" in entry for entry in history())
    torch.compiler.reset()
