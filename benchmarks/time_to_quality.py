"""Pretraining time to a given quality: our recipe compared with transformers' example script for masked LM.

    python -m mybert.benchmarks.time_to_quality corpus/*.txt.gz --validation_file heldout.txt.gz --minutes 60 \
        --rates 5e-4 1e-3 2e-3 --ours pretraining/recipes/laptop_1_hour.yaml --shares 0.1 0.2 1 --output_dir quality

The baseline follows transformers' example script for masked LM: the vocabulary of `tokenizers`' WordPiece trainer,
lines concatenated and split into sequences of equal length, `BertForMaskedLM`, `Trainer` with AdamW and a linear
schedule, `DataCollatorForLanguageModeling` at 15 %. Model size, batch size and dtype are those of our recipe. Its
learning rate is the best of `--rates` in about a tenth of the time (as many steps as fit, estimated from a few steps);
these runs also tell how many steps fit into the whole time. Our recipe trains for `--shares` of the same time, each as
a separate run. Text is read and tokenized before the clock starts.

Both predict the same masked whole words of the same held-out text, so that vocabularies do not matter: the mean of
-log p per word (in nats), the perplexity per word, and nats per character. Results go to `quality.json` in the output
folder; existing parts are not repeated.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

from ..files.checkpoint import read_json_object
from ..files.documents import Corpus, DocumentSettings
from ..files.output import write_json
from ..metrics import masked_words, word_loss
from ..pretraining import PretrainingArguments, PretrainPlan, plan_pretraining, pretrain, read_documents
from ..pretraining.plan import model_config
from ..studies.timing import describe_setting, heading, row
from .harness import count, flag, pretraining_settings, script

TIMED_STEPS = 50


class TransformersWay:
    """Masked LM training as in transformers' example, with the sizes, length and batch of our recipe."""

    def __init__(self, files: Sequence[str], plan: PretrainPlan, folder: Path) -> None:
        self._folder = folder
        self._plan, settings = plan, plan.settings
        vocabulary = folder / "vocab.txt"
        lines = list(Corpus(files, DocumentSettings()).lines())
        if not vocabulary.is_file():
            learned = BertWordPieceTokenizer(lowercase=True)
            learned.train_from_iterator(lines, vocab_size=settings.vocab_size, show_progress=False)
            folder.mkdir(parents=True, exist_ok=True)
            learned.save_model(str(folder))
        self.tokenizer = BertTokenizer.from_pretrained(folder)
        parts = []
        for begin in range(0, len(lines), 10_000):
            encoded = self.tokenizer(lines[begin : begin + 10_000], add_special_tokens=False)["input_ids"]
            parts.append(np.fromiter((token for row in encoded for token in row), dtype=np.int32))
        tokens, body = np.concatenate(parts), settings.max_length - 2
        rows = tokens[: len(tokens) // body * body].reshape(-1, body)
        ends = (0, 0), (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id)
        sequences = np.pad(rows, ((0, 0), (1, 1)), constant_values=ends)
        self._sequences = [{"input_ids": sequence} for sequence in sequences]

    def train(self, rate: float, steps: int, name: str) -> tuple[PreTrainedModel, float]:
        """Train for a number of steps; return the model and the training time in seconds."""
        set_seed(42)
        config = model_config(self._plan, len(self.tokenizer))
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(self.tokenizer),
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                intermediate_size=config.intermediate_size,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=str(self._folder / name),
                max_steps=steps,
                per_device_train_batch_size=self._plan.training.per_device_train_batch_size,
                learning_rate=rate,
                warmup_steps=0.06,
                weight_decay=0.01,
                adam_beta2=0.98,
                logging_steps=max(1, steps // 20),
                save_strategy="no",
                report_to="none",
                bf16=self._plan.training.bf16,
                use_cpu=self._plan.training.use_cpu or not torch.accelerator.is_available(),
                disable_tqdm=True,
            ),
            train_dataset=self._sequences,
            data_collator=DataCollatorForLanguageModeling(self.tokenizer, mlm_probability=0.15),
            processing_class=self.tokenizer,
        )
        seconds = trainer.train().metrics["train_runtime"]
        trainer.save_model(str(self._folder / name))
        return model, seconds


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    recipe = pretraining_settings(arguments.ours.read_bytes(), arguments.ours)
    recipe |= {"text": arguments.text, "max_steps": -1, "disable_tqdm": True}
    documents = read_documents(str(arguments.validation_file))
    texts = masked_words((re.findall(r"\w+|[^\w\s]", " ".join(lines).lower()) for lines in documents), arguments.limit)
    seconds = 60 * arguments.minutes
    output_dir: Path = arguments.output_dir
    output_dir.mkdir(parents=True, exist_ok=True)
    report = output_dir / "quality.json"
    results: dict[str, Any] = read_json_object(report) if report.is_file() else {"setting": describe_setting()}

    def done(name: str, **values: Any) -> None:
        results[name] = values
        write_json(report, results)
        print(name, json.dumps(values), flush=True)

    for share in arguments.shares:
        name, folder = f"mybert, {share * arguments.minutes:g} minutes", output_dir / f"mybert_{share:g}"
        if name not in results:
            hours = share * seconds / 3600
            metrics = pretrain(PretrainingArguments(**recipe | {"max_hours": hours, "output_dir": str(folder)}))
            if metrics["interrupted"]:
                return results
            model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=False)
            loss = word_loss(model, BertTokenizer.from_pretrained(folder), texts)
            steps = read_json_object(folder / "trainer_state.json")["global_step"]
            done(name, **loss, steps=steps, minutes=60 * hours, perplexity_of_a_token=metrics["eval_perplexity"])
    settings = PretrainingArguments(**recipe | {"max_hours": seconds / 3600, "output_dir": str(output_dir)})
    peer = TransformersWay(arguments.text, plan_pretraining(settings), output_dir / "transformers")
    names = {rate: f"transformers at {rate:g}, a tenth of the time" for rate in arguments.rates}
    for rate, name in names.items():
        if name not in results:
            _, of_few = peer.train(rate, TIMED_STEPS, "timing")
            steps = max(1, int(seconds / 10 / of_few * TIMED_STEPS))
            model, taken = peer.train(rate, steps, f"rate_{rate:g}")
            done(name, **word_loss(model, peer.tokenizer, texts), steps=steps, minutes=taken / 60)
    best = min(names, key=lambda rate: results[names[rate]]["nats_per_word"])
    if (name := f"transformers, {arguments.minutes:g} minutes") not in results:
        tried = [results[name] for name in names.values()]
        steps = int(arguments.minutes * sum(run["steps"] for run in tried) / sum(run["minutes"] for run in tried))
        model, taken = peer.train(best, steps, "whole")
        done(name, **word_loss(model, peer.tokenizer, texts), steps=steps, rate=best, minutes=taken / 60)
    return results


@script(
    flag("text", nargs="+"),
    flag("--validation_file", type=Path, required=True),
    flag("--ours", type=Path, required=True, help="YAML file of our recipe"),
    flag("--minutes", type=float, default=60.0),
    flag("--shares", type=float, nargs="+", default=[0.1, 1.0]),
    flag("--rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3]),
    flag("--limit", type=count, default=2000, help="texts in which words are masked"),
    flag("--output_dir", type=Path, default=Path("quality")),
)
def main(arguments: argparse.Namespace) -> None:
    results = measure(arguments)
    print(f"\n{results.pop('setting')}\n")
    print(heading("", "minutes", "steps", "nats a word", "perplexity of a word", "nats a character"))
    for name, values in results.items():
        cells = f"{values['minutes']:.1f}", values["steps"], f"{values['nats_per_word']:.3f}"
        print(row(name, *cells, f"{values['word_perplexity']:.0f}", f"{values['nats_per_character']:.3f}"))


if __name__ == "__main__":
    main()
