import numpy as np
import pytest
from safetensors.numpy import load_file

from mybert import MyBertTokenizer
from mybert.pretraining import TokenStore, build_token_store
from mybert.pretraining import token_store as module


def build(tmp_path, documents, tokenizer):
    path = tmp_path / "store.safetensors"
    return path, build_token_store(documents, tokenizer, path, show_progress=False)


def test_store_holds_the_tokens_of_every_sentence(tmp_path, documents, tokenizer):
    path, summary = build(tmp_path, documents, tokenizer)
    store = TokenStore(path, tokenizer)
    assert store.tokens.dtype == np.uint16
    sentence = 0
    for number, document in enumerate(documents):
        assert store.document_starts[number] == sentence
        for text in document:
            tokens = store.tokens[store.sentence_starts[sentence] : store.sentence_starts[sentence + 1]]
            assert tokens.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
            sentence += 1
    assert store.document_starts[-1] == sentence == len(store.sentence_starts) - 1
    assert store.summary == summary
    assert (summary.documents, summary.sentences, summary.tokens) == (len(documents), sentence, len(store.tokens))


def test_batches_do_not_show(tmp_path, documents, tokenizer, monkeypatch):
    path, _ = build(tmp_path, documents, tokenizer)
    whole = path.read_bytes()
    monkeypatch.setattr(module, "_DOCUMENTS_AT_A_TIME", 7)
    path, _ = build(tmp_path, iter(documents), tokenizer)
    assert path.read_bytes() == whole


def test_it_is_a_plain_safetensors_file(tmp_path, documents, tokenizer):
    path, _ = build(tmp_path, documents, tokenizer)
    arrays = load_file(path)
    assert set(arrays) == {"tokens", "sentence_starts", "document_starts"}
    store = TokenStore(path)
    for name, array in arrays.items():
        assert np.array_equal(array, getattr(store, name))


def test_empty_sentences_and_documents_are_left_out(tmp_path, tokenizer):
    path, summary = build(tmp_path, [["the cat", "\x00"], ["\x00"], [], ["dog", "xyzzy"]], tokenizer)
    assert (summary.documents, summary.sentences, summary.tokens, summary.unknown_tokens) == (2, 3, 4, 1)
    assert TokenStore(path).document_starts.tolist() == [0, 1, 3]
    assert str(summary) == "2 documents, 3 sentences, 4 tokens (25.000% unknown)"


def test_large_vocabularies_need_four_bytes(tmp_path, tokenizer):
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    large = MyBertTokenizer(vocab=[*specials, *(f"w{number}" for number in range(70_000))])
    path, _ = build(tmp_path, [["w69999 w0"], ["w1"]], large)
    store = TokenStore(path)
    assert store.tokens.dtype == np.uint32
    assert store.tokens.tolist() == [70_004, 5, 6]


def test_mistakes(tmp_path, documents, tokenizer):
    with pytest.raises(ValueError, match="corpus is empty"):
        build(tmp_path, [["\x00"]], tokenizer)
    assert list(tmp_path.iterdir()) == []
    path, _ = build(tmp_path, documents, tokenizer)
    other = MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"])
    with pytest.raises(ValueError, match="another tokenizer"):
        TokenStore(path, other)
    with pytest.raises(FileNotFoundError, match="There is no token store"):
        TokenStore(tmp_path / "missing")
    path.write_bytes(b"not a store at all")
    with pytest.raises(ValueError, match="is not a token store"):
        TokenStore(path)
