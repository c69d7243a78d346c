"""A real WordPiece tokenizer and tiny models, both built in memory."""

import pytest
import torch
from transformers import BertConfig, BertTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "cat", "dog", "sat", "lives", "in", "house", "of", "berlin", "where", "who", "is", "what", "did", "a"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
TOKENS += [*".,?!'-가나北京🙂", *WORDS]


@pytest.fixture(scope="session")
def tokenizer():
    return BertTokenizer(vocab={token: number for number, token in enumerate(dict.fromkeys(TOKENS))})


@pytest.fixture(scope="session")
def tiny():
    """Build a model of a class on random weights large enough for clear differences."""

    def build(model_class, config_class=BertConfig, seed=0, **options):
        sizes = {
            "vocab_size": len(dict.fromkeys(TOKENS)),
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
            "initializer_range": 0.4,
        }
        torch.manual_seed(seed)
        return model_class(config_class(**{**sizes, **options})).eval()

    return build
