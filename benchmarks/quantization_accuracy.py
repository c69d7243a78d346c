"""What bfloat16 and int8 cost a fine-tuned classifier: accuracy, and answers that stay the same as in float32.

    mybert finetune --task sst2 --data_dir SST-2 --model MODEL --output_dir my-sst2
    python -m mybert.benchmarks.quantization_accuracy my-sst2 SST-2/dev.tsv SST-2/test.tsv

The files are tab-separated, with a header and columns `sentence` and `label`.
"""

import argparse
import copy
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerBase

from ..files import read_rows
from .script import column, script
from .timing import describe_setting, timed

BATCH_SIZE = 32


def classify_all(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, sentences: list[str]) -> list[int]:
    """The class of each sentence."""
    classes: list[int] = []
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = tokenizer(sentences[start : start + BATCH_SIZE], padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            classes += model(**batch).logits.argmax(-1).tolist()
    return classes


@script
def main() -> None:
    """Print a table for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, trust_remote_code=False).eval()
    variants = {
        "float32": model,
        "float32, prepacked": copy.deepcopy(model).prepack_weights(),
        "bfloat16": copy.deepcopy(model).quantize_weights("bfloat16"),
        "int8": copy.deepcopy(model).quantize_weights("int8"),
    }
    print(describe_setting())
    for path in arguments.files:
        rows = read_rows(path)
        sentences = column(rows, "sentence", path)
        labels = column(rows, "label", path)
        if unknown := set(labels) - set(model.config.label2id):
            known = ", ".join(model.config.label2id)
            raise ValueError(f"{path} has the label {min(unknown)!r}; the model knows {known}.")
        print(
            f"\n{path.name}, {len(rows)} sentences\n\n| | accuracy, % | same answers, % | seconds |\n|---|---|---|---|"
        )
        expected: list[int] = []
        for name, variant in variants.items():
            seconds, classes = timed(partial(classify_all, variant, tokenizer, sentences))
            expected = expected or classes
            right, same = (
                sum(one == other for one, other in zip(classes, others, strict=True)) / len(rows)
                for others in ([model.config.label2id[label] for label in labels], expected)
            )
            print(f"| {name} | {right:.2%} | {same:.2%} | {seconds:.1f} |".replace("%", ""))


if __name__ == "__main__":
    main()
