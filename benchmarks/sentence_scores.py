"""Pairs a second of `mybert score`, of a plain masked loop on transformers and of minicons, if it is installed.

    python -m mybert.benchmarks.sentence_scores my-bert pairs.jsonl
    python -m mybert.benchmarks.sentence_scores my-bert pairs.jsonl --pairs 200 --method original --threads 1

The peers run transformers' BERT with the same weights. The loop has a forward for each sentence, whose masked copies
are its batch. Scores must agree within 1e-4. Reading of files and loading of models are not timed.
"""

import argparse
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from ..conversion import to_transformers_bert
from ..files.checkpoint import Checkpoint
from ..files.source import read_rows
from ..finetuning.prediction.predictor import load_finetuned_model
from ..finetuning.tasks.registry import TASKS, fitted_to_model
from ..pipelines import minimal_pair_accuracy, minimal_pair_columns, pseudo_log_likelihoods
from ..pipelines.options import ScoringMethod
from .harness import REPEATS, check_agreement, count, flag, script, speed_table, take_turns

LOOP = "plain masked loop"
TOLERANCE = 1e-4  # nats


@torch.inference_mode()
def loop_scores(model: Any, tokenizer: Any, texts: list[str], method: ScoringMethod) -> list[float]:
    """The score of each text by one forward."""
    scores = []
    for text in texts:
        encoding = tokenizer(text, return_tensors="pt")
        ids, words = encoding["input_ids"][0], encoding.word_ids()
        places = [place for place, word in enumerate(words) if word is not None]
        copies = ids.repeat(len(places), 1)
        for copy, place in zip(copies, places, strict=True):
            copy[place] = tokenizer.mask_token_id
            for later in range(place + 1, len(words)):
                if method == "within_word_l2r" and words[later] == words[place]:
                    copy[later] = tokenizer.mask_token_id
        rows = torch.arange(len(places))
        logits = model(copies).logits[rows, places]
        scores.append(float(logits.log_softmax(-1)[rows, ids[places]].double().sum()))
    return scores


def minicons_scores(folder: str, batch_size: int) -> Any:
    """A function from texts and a method to scores by minicons; None if it is not installed."""
    try:
        from minicons.scorer import MaskedLMScorer
    except ImportError:
        return None
    scorer = MaskedLMScorer(folder, "cpu")
    if not hasattr(scorer.tokenizer, "batch_encode_plus"):  # which transformers 5 removed, and minicons 0.3 calls
        scorer.tokenizer.batch_encode_plus = scorer.tokenizer.__call__

    def scores(texts: list[str], method: ScoringMethod) -> list[float]:
        batches = (texts[start : start + batch_size] for start in range(0, len(texts), batch_size))
        score = partial(scorer.sequence_score, reduction=lambda tokens: tokens.sum().item(), PLL_metric=method)
        return [each for batch in batches for each in score(batch)]

    return scores


@script(
    flag("model", help="model folder of MyBERT or of transformers' BERT"),
    flag("data", help="file of minimal pairs"),
    flag("--pairs", type=count, default=500, help="pairs at equal distances in the file"),
    flag("--method", choices=get_args(ScoringMethod), default="within_word_l2r", help="what is masked with a token"),
    flag("--minicons_batch_size", type=count, default=32, help="sentences in a batch of minicons"),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    rows = read_rows(arguments.data)
    rows = rows[:: max(1, len(rows) // arguments.pairs)][: arguments.pairs]
    if not (columns := minimal_pair_columns(rows[0])):
        raise ValueError(f"{arguments.data} has no minimal pairs; expected columns sentence_good and sentence_bad.")
    texts = [str(row[column]) for column in columns for row in rows]
    checkpoint = Checkpoint(arguments.model).check()
    task = fitted_to_model(TASKS["fill_mask"], checkpoint.config)
    ours = load_finetuned_model(task, checkpoint, torch.device("cpu"), "float32")
    with TemporaryDirectory() as folder:
        bert = arguments.model
        if checkpoint.config.model_type == "mybert":
            bert = str(Path(folder, "bert"))
            to_transformers_bert(arguments.model, bert)
        theirs = AutoModelForMaskedLM.from_pretrained(bert, trust_remote_code=False).eval()
        peer = minicons_scores(bert, arguments.minicons_batch_size)
        tokenizer = AutoTokenizer.from_pretrained(bert, trust_remote_code=False)
    runs: dict[str, Any] = {
        LOOP: lambda: loop_scores(theirs, tokenizer, texts, arguments.method),
        "mybert": lambda: [
            float(tokens.sum())
            for tokens in pseudo_log_likelihoods(ours.model, ours.tokenizer, texts, arguments.method)
        ],
    }
    if peer:
        runs["minicons"] = lambda: peer(texts, arguments.method)
    seconds, scores = take_turns(runs, arguments.repeats)
    notes = {}
    for name, found in scores.items():
        difference = check_agreement(f"Scores of {name} and of the loop", found, scores[LOOP], TOLERANCE)
        pairs = len(rows) / sorted(seconds[name])[len(seconds[name]) // 2]
        accuracy = minimal_pair_accuracy(found[: len(rows)], found[len(rows) :])
        notes[name] = f"{pairs:,.1f} pairs a second; accuracy {100 * accuracy:.2f} %; differs by {difference:.1e}"
    print(f"{len(rows)} pairs, {arguments.method}:\n\n{speed_table(seconds, LOOP, notes)}")


if __name__ == "__main__":
    main()
