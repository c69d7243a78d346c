"""Questions per second of `pipeline("question-answering")` against a plain loop over the questions.

The loop is what a user would write with transformers 5 alone: tokenize one question with its context, run its windows
as one batch, try all spans. Both sides run alternately in this process on the same weights and texts, and must agree.

    python -m mybert.benchmarks.scripts.question_answering_speed
    python -m mybert.benchmarks.scripts.question_answering_speed --data dev-v1.1.json.gz --model_type mybert
    python -m mybert.benchmarks.scripts.question_answering_speed --model path/to/model --data dev-v2.0.json
"""

import argparse
import operator
import statistics
from collections import Counter
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForQuestionAnswering, BertTokenizer, pipeline

from ...files import read_rows
from ..harness import REPEATS, check_agreement, count, flag, script, speed_table, take_turns


def questions_of(arguments: argparse.Namespace) -> list[dict[str, str]]:
    """Questions spread evenly over the file, or made-up ones with the lengths of SQuAD."""
    if arguments.data is None:
        generator = np.random.default_rng(0)
        words = np.array([f"{a}{b}{c}" for a in "bcdfgklm" for b in "aeiou" for c in "nrstx"])
        lengths = np.clip(generator.lognormal(np.log(arguments.words), 0.45, arguments.questions), 3, 600).astype(int)
        return [
            {"question": " ".join(generator.choice(words, 11)), "context": " ".join(generator.choice(words, length))}
            for length in lengths
        ]
    examples = [{name: row[name] for name in ("question", "context")} for row in read_rows(arguments.data)]
    return examples[:: max(1, len(examples) // arguments.questions)][: arguments.questions]


def model_for(arguments: argparse.Namespace, examples: list[dict[str, str]]) -> tuple[Any, Any]:
    """Model and tokenizer: those of a folder, or random weights and the words of the texts."""
    if arguments.model is not None:
        model = AutoModelForQuestionAnswering.from_pretrained(arguments.model, trust_remote_code=False)
        return model, transformers.AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    text = " ".join(f"{example['question']} {example['context']}" for example in examples).lower()
    letters = sorted(set(text) - {" "})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    pieces += [word for word, _ in Counter(text.split()).most_common(20_000)]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(dict.fromkeys(pieces))})
    config = AutoConfig.for_model(
        arguments.model_type,
        vocab_size=len(tokenizer),
        hidden_size=arguments.hidden_size,
        num_hidden_layers=arguments.layers,
        num_attention_heads=max(1, arguments.hidden_size // 64),
        intermediate_size=4 * arguments.hidden_size,
    )
    torch.manual_seed(0)
    return AutoModelForQuestionAnswering.from_config(config), tokenizer


@torch.inference_mode()
def plain_loop(
    model: Any, tokenizer: Any, examples: list[dict[str, str]], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for example in examples:
        encoded = tokenizer(
            example["question"],
            example["context"],
            truncation="only_second",
            max_length=arguments.max_seq_len,
            stride=arguments.doc_stride,
            padding=True,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        inputs = {name: torch.tensor(encoded[name], device=model.device) for name in tokenizer.model_input_names}
        output = model(**inputs)
        starts, ends = output.start_logits.float().cpu().numpy(), output.end_logits.float().cpu().numpy()
        best = (-np.inf, 0, 0)
        for window, (start, end) in enumerate(zip(starts, ends, strict=True)):
            outside = np.array(encoded.sequence_ids(window)) != 1
            scores = np.where(outside, -np.inf, start)[:, None] + np.where(outside, -np.inf, end)
            scores = np.where(np.tril(np.triu(np.ones_like(scores)), 14) > 0, scores, -np.inf)
            first, last = np.unravel_index(scores.argmax(), scores.shape)
            offsets = encoded["offset_mapping"][window]
            best = max(best, (scores[first, last], offsets[first][0], offsets[last][1]))
        results.append({"start": best[1], "end": best[2], "answer": example["context"][best[1] : best[2]]})
    return results


@script(
    flag("--model", help="Model folder or Hub name; without it random weights."),
    flag("--model_type", default="bert", help="Type of the random model: bert or mybert."),
    flag("--layers", type=count, default=4, help="Layers of the random model."),
    flag("--hidden_size", type=count, default=256, help="Hidden size of the random model."),
    flag("--data", help="SQuAD JSON file (.gz too); without it made-up texts."),
    flag("--questions", type=count, default=200, help="How many questions."),
    flag("--words", type=count, default=120, help="Median words of the made-up contexts (SQuAD has about 120)."),
    flag("--batch_size", type=count, help="Windows in a batch; chosen for the device if not given."),
    REPEATS,
    flag("--max_seq_len", type=count, default=384, help="Tokens of a window."),
    flag("--doc_stride", type=int, default=128, help="Tokens shared by neighbouring windows."),
    flag("--device", default="cuda" if torch.cuda.is_available() else "cpu"),
)
def main(arguments: argparse.Namespace) -> None:
    examples = questions_of(arguments)
    model, tokenizer = model_for(arguments, examples)
    answerer = pipeline(
        "question-answering",
        model=model,
        tokenizer=tokenizer,
        device=arguments.device,
        batch_size=arguments.batch_size,
        align_to_words=False,
        max_seq_len=arguments.max_seq_len,
        doc_stride=arguments.doc_stride,
    )
    plain = "plain loop"
    sides = {
        plain: lambda: plain_loop(model, tokenizer, examples, arguments),
        "pipeline, one question a call": lambda: [answerer(example) for example in examples],
        "pipeline, a list": lambda: answerer(examples),
    }
    seconds, answers = take_turns(sides, arguments.repeats)
    size = f"{model.config.num_hidden_layers} layers x {model.config.hidden_size}"
    print(f"{len(examples)} questions, {type(model).__name__}, {size}")
    spans = {name: [(each["start"], each["end"]) for each in found] for name, found in answers.items()}
    notes = {}
    for name, times in seconds.items():
        same = sum(map(operator.eq, spans[name], spans[plain]))
        # Rounding differs between batch shapes, so two nearly equal spans may swap places.
        check_agreement(f"{name}'s answers", same, len(examples), 0.01 * len(examples))
        rate = len(examples) / statistics.median(times)
        notes[name] = f"{rate:.1f} questions/s, same answers {same}/{len(examples)}"
    print(speed_table(seconds, plain, notes))


if __name__ == "__main__":
    main()
