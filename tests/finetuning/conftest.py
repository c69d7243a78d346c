"""Models of one tiny layer with random weights."""

import pytest
import torch

from mybert import MyBertConfig, MyBertForPreTraining


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, tokenizer):
    """A folder like that of a pretrained model."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = MyBertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    MyBertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
