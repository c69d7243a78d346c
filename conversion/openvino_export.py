"""Model folders to OpenVINO, for this package's commands and for optimum-intel; the result is run and compared.

As in `onnx_export`, names are those that these tools expect. `pipelines/openvino_model.py` has the graph's format.
"""

import logging
import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..files.checkpoint import OPENVINO_FILE, TASK_RECORD
from ..files.documents import Corpus, DocumentSettings
from ..files.output import write_json
from ..files.processes import no_warnings
from ..files.text import PAIR_SEPARATOR
from ..modeling_mybert import MyBertForSequenceClassification, flat_indices
from ..modeling_mybert.batch_mybert import unmask_empty_rows
from ..pipelines.batching import pad_rows, run_sorted
from ..pipelines.openvino_model import OpenVinoModel, import_openvino
from ..tokenization import encode_and_truncate
from ..tokenization.characters import replace_lone_surrogates
from .key_map import HEADS
from .model_folder import ModelFolder, new_model_folder
from .options import ConvertOpenVinoArguments
from .transformers_bert import copy_what_goes_along
from .verification import INPUTS, REPORT_FILE, SHAPES, TOLERANCE, OpenVinoReport, compare_outputs, example_batch

logger = logging.getLogger(__name__)

_EXAMPLE = (2, 3, 8)  # the batch while tracing
_CALIBRATING, _COMPARED = 300, 1000  # texts at most, drawn from the given ones

_Row = Mapping[str, np.ndarray]


def export_openvino(
    model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], **options: Any
) -> OpenVinoReport:
    """Write a model for OpenVINO with its tokenizer and task, and compare what OpenVINO computes with PyTorch.

    `predict`, `evaluate` and `features` run the folder, and so do tools that read optimum-intel's. The inputs
    `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch, length) or for multiple choice (batch, choices,
    length), take any batch size, number of choices, and length up to `max_position_embeddings`. The outputs have the
    names that the model gives them.

    Args:
        model_dir: A MyBERT or BERT model folder, with any head.
        output_dir: Folder to write. It is created at the end, after the comparison. It gets `openvino_model.xml` and
            `.bin`, `config.json`, the tokenizer and sentence-transformers' files if the source has them, and the
            report as `conversion.json`.
        **options: Those of `mybert convert openvino`, such as `dtype="int8", data=["texts.txt"]`.

    Returns:
        The report.

    Raises:
        ValueError: If the model folder is incomplete or its model reads from left to right, there are no texts for
            int8, the results differ by more than rounding (1e-4; for int8 only finite values are required), or
            `output_dir` contains other files.
        OSError: If it cannot be written.
        ImportError: If openvino, or nncf for int8, is missing.
    """
    openvino = import_openvino()
    settings = ConvertOpenVinoArguments(model=os.fspath(model_dir), output_dir=os.fspath(output_dir), **options)
    is_int8 = settings.dtype == "int8"
    if is_int8:
        _require_nncf()
    source = ModelFolder(model_dir)
    if source.config.get("is_decoder"):
        raise ValueError(f"{source.path}: is_decoder is true; expected a model that reads in both directions")
    with new_model_folder(output_dir, settings.overwrite, model_dir) as folder:
        source.parameters()  # raises an error if one is missing
        model, _ = source.load("mybert")
        tokenizer, rows = _tokenized(source, model, settings) if settings.data else (None, [])
        calibrating = 0
        logger.info(f"exporting {source.path}")
        graph = _convert(openvino, model, source.head)
        if is_int8:
            calibrating = min(_CALIBRATING, (len(rows) + 1) // 2)
            logger.info(f"quantizing to int8 with {calibrating} texts")
            graph = _quantize(graph, rows[:calibrating], source.head)
        openvino.save_model(graph, folder / OPENVINO_FILE, compress_to_fp16=False)
        logger.info("comparing with PyTorch")
        batches = [example_batch(model.config, source.head, shape) for shape in SHAPES]
        converted = OpenVinoModel(folder, model.config)
        tolerance = math.inf if is_int8 else TOLERANCE
        sides = model, source.head, OPENVINO_FILE, lambda batch: converted(**batch)
        differences = compare_outputs(*sides, batches, tolerance)
        compared = (rows[calibrating:] or rows)[:_COMPARED]
        report = OpenVinoReport(
            source=str(source.path),
            output=str(output_dir),
            head=source.head,
            dtype=settings.dtype,
            differences=differences,
            texts=len(compared),
            **(_compare_on_texts(model, converted, compared, source.head, tokenizer) if compared else {}),
        )
        write_json(folder / "config.json", source.config_as("bert") | {"dtype": "float32"}, sort_keys=True)
        copy_what_goes_along(source, folder)
        write_json(folder / REPORT_FILE, asdict(report), sort_keys=True)
    return report


def _require_nncf() -> None:
    try:
        import nncf  # noqa: F401
    except ImportError as error:
        raise ImportError("int8 needs NNCF; install it with `pip install mybert[openvino]`.") from error


def _tokenized(
    source: ModelFolder, model: PreTrainedModel, settings: ConvertOpenVinoArguments
) -> tuple[PreTrainedTokenizerBase, list[_Row]]:
    """The tokenizer, and the network's inputs for texts drawn from the given ones."""
    reading = DocumentSettings(encoding=settings.encoding, text_column=settings.text_column)
    texts = list(map(replace_lone_surrogates, Corpus(settings.data, reading).texts()))
    if not texts:
        raise ValueError(f"There is no text in {', '.join(settings.data)}.")
    texts = random.Random(0).sample(texts, min(len(texts), _CALIBRATING + _COMPARED))
    tokenizer = AutoTokenizer.from_pretrained(source.path, trust_remote_code=False)
    record = source.config.get(TASK_RECORD) or {}
    longest = min(record.get("max_length") or math.inf, model.config.max_position_embeddings)
    pairs = (text.rsplit(PAIR_SEPARATOR, 1) for text in texts)
    encodings = (encode_and_truncate(tokenizer, [pair], longest).inputs for pair in pairs)
    return tokenizer, [{name: np.array(values[name][0]) for name in INPUTS} for values in encodings]


class _Numbered(nn.Module):
    """A model whose attention mask numbers the sequences of a row."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        numbers = unmask_empty_rows(attention_mask.flatten(0, -2))
        is_start = (numbers > 1) & (numbers != F.pad(numbers[:, :-1], (1, 0)))
        is_start = torch.cat([torch.ones_like(is_start[:, :1]), is_start[:, 1:]], dim=1)
        query, key = numbers[:, :, None], numbers[:, None]
        # As elsewhere, padding attends to tokens, too: the pooled token may be padding.
        mask = (key > 0) & ((key == query) | (query == 0))
        starts = flat_indices(is_start)
        end = torch.ones_like(numbers).sum()[None]  # not `numel`, which would become a constant of the graph
        arguments = {
            "input_ids": input_ids,
            "attention_mask": mask.view(*attention_mask.shape[:-1], 1, *mask.shape[1:]),
            "token_type_ids": token_type_ids,
            "cu_seq_lens_q": torch.cat([starts, end]),
        }
        if isinstance(self.model, MyBertForSequenceClassification) and self.model.config.classifier_pooling == "mean":
            # The model's own mean would count padding, which a prepared mask does not tell.
            states = self.model.bert(**arguments).last_hidden_state.flatten(0, 1)
            owners, is_token = is_start.flatten().cumsum(0) - 1, (numbers.flatten() > 0).to(states.dtype)[:, None]
            # Not a product with a matrix of fractions, which NNCF would quantize.
            sums = states.new_zeros(starts.shape[0], states.shape[1]).index_add(0, owners, is_token * states)
            counts = states.new_zeros(starts.shape[0], 1).index_add(0, owners, is_token)
            return {"logits": self.model.classifier(sums / counts)}
        return dict(self.model(**arguments))


def _convert(openvino: Any, model: PreTrainedModel, head: str) -> Any:
    example = example_batch(model.config, head, _EXAMPLE)
    with no_warnings(), torch.no_grad():
        graph = openvino.convert_model(_Numbered(model), example_input=example)
    for name in example:
        graph.input(name).get_tensor().set_names({name})  # without the numbers that tracing gives
    return graph


def _quantize(graph: Any, rows: Sequence[_Row], head: str) -> Any:
    import nncf

    # One text at a time, so that there is no padding whose states would widen the ranges.
    shape = (1, 1, -1) if head == "multiple-choice" else (1, -1)
    samples = [{name: values.reshape(shape) for name, values in row.items()} for row in rows]
    with no_warnings():
        return nncf.quantize(
            graph, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(samples)
        )


def _compare_on_texts(
    model: PreTrainedModel, converted: OpenVinoModel, rows: Sequence[_Row], head: str, tokenizer: Any
) -> dict[str, float | None]:
    """The largest difference on texts, and the fraction of equal decisions: the highest logits of texts or tokens."""
    shapes = HEADS[head].outputs

    def collate(chosen: Sequence[_Row]) -> dict[str, torch.Tensor]:
        batch = pad_rows(tokenizer, chosen)
        return {name: values[:, None] for name, values in batch.items()} if head == "multiple-choice" else batch

    def keep(outputs: Any, batch: object, chosen: Sequence[_Row]) -> Iterator[list[np.ndarray]]:
        for place, row in enumerate(chosen):
            ends = {name: len(row["input_ids"]) if "length" in shapes[name] else None for name in outputs}
            yield [values[place, : ends[name]].numpy() for name, values in outputs.items()]

    pairs = zip(*(run_sorted(one, rows, collate, keep) for one in (model, converted)), strict=True)
    difference, equal = 0.0, []
    for expected, found in pairs:
        for right, other in zip(expected, found, strict=True):
            difference = max(difference, float(np.abs(right - other).max()))
            if head != "encoder" and right.shape[-1] > 1:
                equal.append(np.equal(right.argmax(-1), other.argmax(-1)).ravel())
    share = float(np.concatenate(equal).mean()) if equal else None
    return {"difference_on_texts": difference, "equal_decisions": share}
