"""Sizes of new models: those that were published, and layers x width."""

import pytest
import torch

from mybert import MyBertConfig, MyBertModel
from mybert.files.errors import SettingError
from mybert.runs.model_sizes import fields_of_size, is_size

# Parameters of Google's models with 30,522 pieces: uncased base and large, and the miniatures.
PUBLISHED = {
    "tiny": 4_385_920,
    "mini": 11_170_560,
    "small": 28_763_648,
    "medium": 41_373_184,
    "base": 109_482_240,
    "large": 335_141_888,
}


@pytest.mark.parametrize(("size", "parameters"), PUBLISHED.items())
def test_named_sizes_are_those_of_googles_models(size, parameters):
    with torch.device("meta"):
        model = MyBertModel(MyBertConfig(**fields_of_size(size)))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model.config.hidden_size == 64 * model.config.num_attention_heads
    assert is_size(size)


def test_layers_and_width_have_heads_of_64_and_four_times_as_wide_layers():
    assert is_size("2x256")
    assert fields_of_size("2x256") == {
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }
    assert fields_of_size("1x64")["num_attention_heads"] == 1


@pytest.mark.parametrize("size", ["0x64", "2x0", "2x32", "2x100", "huge", "2x", "x64", "2x64x2", "2 x 64"])
def test_other_sizes_are_errors(size):
    assert is_size(size) is (size in ("0x64", "2x0", "2x32", "2x100"))
    with pytest.raises(SettingError, match=f"hidden_size is '{size}'; expected"):
        fields_of_size(size, "hidden_size")
