"""Some steps of the recipe `gpu_1_hour`, with its own data pipeline, on generated text."""

import statistics
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from ..files import read_json_object
from ..pretraining import build_token_store, pretrain
from ..tokenization import MyBertTokenizer
from .accelerator import MASKED, GpuSettings, Section
from .gpu_training import needed_work

RECIPE = Path(__file__).resolve().parents[1] / "pretraining" / "recipes" / "gpu_1_hour.yaml"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STORE_TOKENS, SENTENCE, DOCUMENT = 4_000_000, 20, 10  # tokens; tokens of a sentence; sentences of a document
HEADER = """| steps | sequences a step | tokens/s | share of the matrix rate | peak memory, GB | first loss | last |
|---:|---:|---:|---:|---:|---:|---:|"""


def made_up_documents(tokens: int, words: int) -> Iterator[list[str]]:
    """Documents with about this many tokens from this many words, distributed by Zipf's law."""
    generator = torch.Generator().manual_seed(0)
    size = SENTENCE * DOCUMENT
    documents = max(4, tokens // size)
    drawn = torch.multinomial(1 / torch.arange(1, words + 1), documents * size, replacement=True, generator=generator)
    for document in drawn.view(documents, DOCUMENT, SENTENCE):
        yield [" ".join(f"w{word}" for word in sentence) for sentence in document.tolist()]


def recipe_section(settings: GpuSettings, rate: float, changes: Mapping[str, Any]) -> Section:
    """Yield a row for the recipe's training with `changes`; `rate` is the device's in operations per second."""
    yield HEADER
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    steps = settings.recipe_steps
    recipe |= {"max_hours": None, "max_steps": steps, "logging_steps": max(1, steps // 6)}
    recipe |= {"eval_strategy": "no", "eval_steps": None, "save_strategy": "no", "disable_tqdm": True}
    recipe |= {"batch_ramp": 0.0, "heldout": 0.0}  # each part of the ramp would be compiled again
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = [f"w{number}" for number in range(settings.vocabulary - len(SPECIAL))]
        tokenizer = MyBertTokenizer(vocab=[*SPECIAL, *words])
        tokenizer.save_pretrained(folder / "tokenizer")
        tokens = min(STORE_TOKENS, 100 * settings.tokens)
        documents = made_up_documents(tokens, len(words))
        build_token_store(documents, tokenizer, folder / "store.safetensors", show_progress=False)
        recipe |= {"data": str(folder / "store.safetensors"), "tokenizer": str(folder / "tokenizer")}
        recipe |= {"output_dir": str(folder / "run"), **changes}
        if settings.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        torch.compiler.reset()
        pretrain(**recipe)
        state = read_json_object(folder / "run" / "trainer_state.json")
    logs = [entry for entry in state["log_history"] if "tokens_per_second" in entry]
    # The first steps include compilation.
    speed = statistics.median(entry["tokens_per_second"] for entry in logs[len(logs) // 2 :])
    length = recipe["max_length"]
    work = needed_work(recipe["model_size"], torch.tensor([length]), round(MASKED * length), settings.vocabulary)
    peak = torch.cuda.max_memory_allocated() / 1e9 if settings.device == "cuda" else float("nan")
    sequences = recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"]
    sequences *= recipe["row_length"] // length
    share = f"{speed * work / length / rate:.0%}"
    losses = " | ".join(f"{logs[place]['mlm_loss']:.2f}" for place in (0, -1))
    yield f"| {state['global_step']} | {sequences:,} | {speed:,.0f} | {share} | {peak:.1f} | {losses} |"
