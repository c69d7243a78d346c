"""`benchmarks/time_to_quality.py` asks every model for the same words, and trains both ways."""

import json
import math

import pytest
import torch

from mybert import MyBertConfig, MyBertForMaskedLM
from mybert.benchmarks.time_to_quality import HiddenWords, hidden_words, word_loss

TEXTS = [
    HiddenWords("the cat sat on the mat".split(), frozenset({1, 5})),
    HiddenWords("a dog ate the bread .".split(), frozenset({4})),
]


def test_words_are_drawn_from_letters_and_twice_the_same():
    documents = [["The cat, in 1999, sat on it." * 40, "Café!" * 9]]
    texts = hidden_words(iter(documents), 5)
    assert len(texts) == 5 and texts == hidden_words(iter(documents), 5)
    assert {len(text.words) for text in texts} == {36}
    asked = [text.words[place] for text in texts for place in text.hidden]
    assert set(asked) <= {"the", "cat", "in", "sat", "on", "it"}
    assert 0.05 < len(asked) / (5 * 36) < 0.25


def test_the_loss_of_a_word_is_that_of_all_its_pieces(tokenizer):
    config = MyBertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    model = MyBertForMaskedLM(config).eval()
    measured = word_loss(model, tokenizer, TEXTS)
    loss, characters = 0.0, 0
    for text in TEXTS:
        pieces = [tokenizer.tokenize(word) for word in text.words]
        shown = [["[MASK]"] * len(parts) if place in text.hidden else parts for place, parts in enumerate(pieces)]
        flat = ["[CLS]", *(part for parts in shown for part in parts), "[SEP]"]
        with torch.no_grad():
            scores = model(torch.tensor([tokenizer.convert_tokens_to_ids(flat)])).logits[0].log_softmax(-1)
        position = 1
        for place, parts in enumerate(pieces):
            for piece in tokenizer.convert_tokens_to_ids(parts):
                if place in text.hidden:
                    loss -= float(scores[position, piece])
                position += 1
        characters += sum(len(text.words[place]) for place in text.hidden)
    assert measured["words"] == 3
    assert measured["nats_per_word"] == pytest.approx(loss / 3, rel=1e-5)
    assert measured["word_perplexity"] == pytest.approx(math.exp(loss / 3), rel=1e-4)
    assert measured["nats_per_character"] == pytest.approx(loss / characters, rel=1e-5)


@pytest.mark.slow
def test_both_ways_are_trained_once(run, tmp_path, documents):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(document * 8) for document in documents * 3) + "\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "{vocab_size: 90, layout: compact, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, "
        "max_length: 24, per_device_train_batch_size: 4, use_cpu: true, num_processes: 1, save_strategy: 'no', "
        "heldout: 0.2}"
    )
    flags = [text, "--heldout", text, "--ours", recipe, "--minutes", 0.05, "--shares", 0.5, "--rates", 1e-3]
    shown = run("time_to_quality", *flags, "--limit", 20, "--output_dir", tmp_path / "out")
    rows = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| ") and "nats" not in line]
    names = ["mybert, 0.025 minutes", "transformers at 0.001, a tenth of the time", "transformers, 0.05 minutes"]
    assert rows == names
    results = json.loads((tmp_path / "out" / "quality.json").read_text())
    assert len({results[name]["words"] for name in names}) == 1
    assert all(1 < results[name]["nats_per_word"] < 12 for name in names)
    again = run("time_to_quality", *flags, "--limit", 20, "--output_dir", tmp_path / "out")
    assert [line for line in again.splitlines() if line.startswith("| ")] == [
        line for line in shown.splitlines() if line.startswith("| ")
    ]
