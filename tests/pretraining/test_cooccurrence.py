"""`--embedding_init cooccurrence`: the counts, the resulting embeddings, and a run that starts from them."""

import json
import math
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mybert import MyBertForMaskedLM
from mybert.pretraining import TokenStore, build_token_store, initial_weights, pretrain
from mybert.pretraining.initial_weights import begin_with_statistics, piece_statistics


def texts(store, documents):
    """The tokens of each document."""
    bounds = [store.sentence_starts[store.document_starts[[number, number + 1]]] for number in documents]
    return [store.tokens[begin:end].tolist() for begin, end in bounds]


def information_by_hand(documents, vocab_size):
    """PPMI with contexts' counts to the power of 0.75, by loops; rows and columns are token ids."""
    near: Counter = Counter()
    for tokens in documents:
        for i, piece in enumerate(tokens):
            for j, context in enumerate(tokens):
                if 1 <= abs(i - j) <= 5:
                    near[piece, context] += 1 / abs(i - j)
    of_piece, of_context = Counter(), Counter()
    for (piece, context), count in near.items():
        of_piece[piece] += count
        of_context[context] += count
    smoothed = {context: count**0.75 for context, count in of_context.items()}
    found = np.zeros((vocab_size, vocab_size))
    for (piece, context), count in near.items():
        share = smoothed[context] / sum(smoothed.values())
        found[piece, context] = max(math.log(count / of_piece[piece] / share), 0)
    return found


def test_embeddings_factor_the_information(store, tokenizer):
    chosen = np.arange(len(store.document_starts) - 1)[1:]  # the first is held out
    size = len(tokenizer)
    documents = texts(store, chosen)
    embeddings, found_counts = piece_statistics(store, chosen, size, width=size)
    counts = Counter(token for tokens in documents for token in tokens)
    assert found_counts.tolist() == [counts[token] for token in range(size)]
    left, values, _ = np.linalg.svd(information_by_hand(documents, size))
    seen = found_counts > 0
    expected = (left * np.sqrt(values))[seen]
    expected -= expected.mean(0)
    expected /= np.linalg.norm(expected, axis=1).mean()
    # Embeddings are unique up to rotation and sign: compare angles and lengths.
    np.testing.assert_allclose(embeddings[seen] @ embeddings[seen].T, expected @ expected.T, atol=1e-4)
    assert not embeddings[~seen].any()


def test_piece_statistics_in_chunks_are_equal(store, tokenizer, monkeypatch):
    every = np.arange(len(store.document_starts) - 1)
    size = len(tokenizer)
    whole, counts = piece_statistics(store, every, size, width=size)
    monkeypatch.setattr(initial_weights, "_TOKENS_AT_A_TIME", 30)
    chunks, _ = piece_statistics(store, every, size, width=size)
    np.testing.assert_allclose(chunks @ chunks.T, whole @ whole.T, atol=1e-4)
    assert np.array_equal(piece_statistics(store, every, size, width=size)[0], chunks)
    # In a long text every n-th document is counted.
    monkeypatch.setattr(initial_weights, "_MAX_TOKENS", int(counts.sum()) // 2)
    assert np.array_equal(
        piece_statistics(store, every, len(tokenizer), 8)[1],
        piece_statistics(store, every[::2], len(tokenizer), 8)[1],
    )


def test_pieces_in_the_same_company_are_neighbors(tmp_path, tokenizer):
    # "cat" and "dog" are never neighbors, but occur between the same words; "mat" does not.
    lines = [f"the {animal} sat and ate the bread" for animal in ("cat", "dog")] * 20 + ["on the mat"] * 20
    build_token_store(iter([[line] for line in lines]), tokenizer, tmp_path / "store")
    store = TokenStore(tmp_path / "store")
    vectors = piece_statistics(store, np.arange(len(lines)), len(tokenizer), 6)[0]
    cat, dog, mat = (vectors[tokenizer.convert_tokens_to_ids(word)] for word in ("cat", "dog", "mat"))

    def angle(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert angle(cat, dog) > 0.95 > angle(cat, mat) + 0.5


def test_a_model_begins_with_embeddings_and_frequencies(store, tokenizer, make_model):
    model = make_model(MyBertForMaskedLM)
    before = model.get_input_embeddings().weight.detach().clone()
    documents = np.arange(len(store.document_starts) - 1)
    begin_with_statistics(model, store, documents)
    _, counts = piece_statistics(store, documents, len(tokenizer), 16)
    seen = torch.from_numpy(counts > 0)
    weights = model.get_input_embeddings().weight
    assert torch.equal(weights[~seen], before[~seen])
    assert weights[seen].norm(dim=1).mean().item() == pytest.approx(3 * 0.02 * 16**0.5, rel=1e-4)
    assert model.get_output_embeddings().weight is weights
    shares = model.get_output_embeddings().bias.softmax(0)
    np.testing.assert_allclose(shares.detach(), (counts + 1) / (counts + 1).sum(), rtol=1e-4)


RUN = {"embedding_init": "cooccurrence", "causal_share": 0.5, "learning_rate": 1e-3}


@pytest.mark.slow
def test_a_run_begins_with_them_once(tmp_path, arguments, monkeypatch, caplog):
    calls = []
    monkeypatch.setattr(
        "mybert.pretraining.run.begin_with_statistics",
        lambda *given: (calls.append(given[2]), begin_with_statistics(*given)),
    )
    with caplog.at_level("INFO"):
        whole = pretrain(arguments(**RUN))
    assert len(calls) == 1  # though there are two phases
    settings_of_run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert settings_of_run["embedding_init"] == "cooccurrence"
    store = TokenStore(tmp_path / "out" / "tokens.safetensors")
    assert len(calls[0]) < len(store.document_starts) - 1  # held-out documents are not counted
    assert "start from counts of their neighbors" in caplog.text
    assert "| word embeddings | from a count of neighbors |" in (tmp_path / "out" / "README.md").read_text()

    for name in ("checkpoint-4", "model.safetensors"):
        path = tmp_path / "out" / name
        path.rename(tmp_path / name)
    again = pretrain(arguments(**RUN))  # goes on from step 2
    assert len(calls) == 1
    assert again["eval_mlm_loss"] == whole["eval_mlm_loss"]
    weights, expected = load_file(tmp_path / "out" / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_without_scikit_learn_nothing_begins(tmp_path, arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.utils.extmath", None)
    with pytest.raises(ImportError, match="need scikit-learn: run pip install"):
        pretrain(arguments(**RUN))
    assert not any((tmp_path / "out").glob("*"))
