"""Make a fine-tuned classifier smaller without training: drop layers, attention heads and feed-forward units.

    python examples/prune_encoder.py my-sst2 glue/SST-2/dev.tsv my-sst2-small --heads 8 --units 1024

Importance is the mean absolute derivative of an example's loss with respect to a factor on the output of a head or
unit (Michel et al., 2019, section 4.1). All layers keep equally many. The result is a MyBERT folder like any other.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.pytorch_utils import prune_linear_layer

import mybert


def importance(
    model: mybert.MyBertForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    labels: list[int],
) -> list[Tensor]:
    """Return the importance of heads, (layers, heads), and of feed-forward units, (layers, units)."""
    counts = (model.config.num_attention_heads, model.config.intermediate_size)
    totals = [torch.zeros(model.config.num_hidden_layers, count) for count in counts]
    layers: Any = model.bert.encoder.layer
    modules = [part.output.dense for layer in layers for part in (layer.attention, layer)]
    values: dict[nn.Module, Tensor] = {}  # outputs of the heads side by side, or of the units

    def keep(module: nn.Module, inputs: tuple[Tensor]) -> None:
        values[module] = inputs[0]

    hooks = [module.register_forward_pre_hook(keep) for module in modules]
    model.config.unpad_inputs = False  # so that each example is a row
    for start in range(0, len(texts), 16):
        batch = slice(start, start + 16)
        tokens = tokenizer(texts[batch], padding=True, truncation=True, max_length=128, return_tensors="pt")
        loss = nn.functional.cross_entropy(model(**tokens).logits, torch.tensor(labels[batch]), reduction="sum")
        gradients = torch.autograd.grad(loss, [values[module] for module in modules])
        for index, (module, gradient) in enumerate(zip(modules, gradients, strict=True)):
            layer, kind = divmod(index, 2)
            products = (values[module].detach() * gradient).sum(1).unflatten(1, (counts[kind], -1))
            totals[kind][layer] += products.sum(2).abs().sum(0)
    for hook in hooks:
        hook.remove()
    model.config.unpad_inputs = True
    return totals


def prune(model: mybert.MyBertForSequenceClassification, heads: list[list[int]], units: list[list[int]]) -> None:
    """Keep these heads and units of each layer, equally many in all layers, and remove the weights of the others."""
    size = model.config.head_size
    layers: Any = model.bert.encoder.layer
    for layer, kept_heads, kept_units in zip(layers, heads, units, strict=True):
        of_heads = torch.cat([torch.arange(head * size, (head + 1) * size) for head in kept_heads])
        for name in ("query", "key", "value"):
            setattr(layer.attention.self, name, prune_linear_layer(getattr(layer.attention.self, name), of_heads))
        of_units = torch.tensor(kept_units)
        layer.attention.output.dense = prune_linear_layer(layer.attention.output.dense, of_heads, dim=1)
        layer.intermediate.dense = prune_linear_layer(layer.intermediate.dense, of_units)
        layer.output.dense = prune_linear_layer(layer.output.dense, of_units, dim=1)
    model.config.head_dim = size  # no longer the hidden size divided by the number of heads
    model.config.num_attention_heads, model.config.intermediate_size = len(heads[0]), len(units[0])


def main() -> None:
    """Prune a model, save it, and evaluate both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a classifier of texts from mybert finetune")
    parser.add_argument("data", type=Path, help="labeled examples, a table with tabs and a header")
    parser.add_argument("output", help="folder of the smaller model")
    parser.add_argument("--layers", type=int, nargs="+", help="layers to keep, counted from 0 (default: all)")
    parser.add_argument("--heads", type=int, help="heads to keep in each layer (default: all)")
    parser.add_argument("--units", type=int, help="feed-forward units to keep in each layer (default: all)")
    parser.add_argument("--text_column", default="sentence")
    parser.add_argument("--label_column", default="label")
    arguments = parser.parse_args()

    model = mybert.MyBertForSequenceClassification.from_pretrained(arguments.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    parameters = model.num_parameters()
    with arguments.data.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    if arguments.layers:
        encoder = model.bert.encoder
        encoder.layer = nn.ModuleList(encoder.layer[index] for index in arguments.layers)
        model.config.num_hidden_layers = len(arguments.layers)
    if arguments.heads or arguments.units:
        texts = [row[arguments.text_column] for row in rows]
        labels = [model.config.label2id[row[arguments.label_column]] for row in rows]
        of_heads, of_units = importance(model, tokenizer, texts, labels)
        heads = of_heads.topk(arguments.heads or of_heads.shape[1]).indices.sort().values
        units = of_units.topk(arguments.units or of_units.shape[1]).indices.sort().values
        prune(model, heads.tolist(), units.tolist())
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)

    for name, count in ((arguments.model, parameters), (arguments.output, model.num_parameters())):
        accuracy = mybert.evaluate(name, str(arguments.data))["accuracy"]
        print(f"{name}: {count:,} parameters, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
