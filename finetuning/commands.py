"""The commands `mybert evaluate` and `mybert features`."""

import json
import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from ..files.checkpoint import COMPANIONS, Checkpoint, check_available
from ..files.documents import Corpus, DocumentSettings
from ..files.errors import SettingError
from ..files.loading import load_tokenizer, longest_sequence
from ..files.options import Range, check_number
from ..files.output import check_can_be_folder, check_output_files, output_to, outputs_together, write_json
from ..files.processes import leave_standard_output, torch_threads
from ..files.source import Source, files_of
from ..files.tables import json_line
from ..files.text import PAIR_SEPARATOR, STDIN
from ..metrics import metric_of
from ..pipelines.openvino_model import runs_in_openvino
from ..pipelines.options import Engine
from ..tokenization import encode_and_truncate
from ..tokenization.characters import replace_lone_surrogates
from .data import TaskData
from .feature_table import FEATURES, Features
from .features import (
    SentenceSettings,
    combine,
    hidden_states,
    load_encoder,
    load_encoder_graph,
    rounded_values,
    sentence_settings,
    token_features,
    token_tensors,
)
from .heads import check_max_length, heads_of
from .prediction.predictor import PREDICTION_FILES, REPORT_FILES, load_finetuned_model, write_reports
from .settings.evaluation import EvaluateArguments, EvaluateSettings
from .settings.features import FeaturesSettings
from .tasks.calibration import calibrator_of
from .tasks.registry import evaluation_names
from .tasks.steps import long_text_lines, read_examples, read_predictions, write_predictions
from .tasks.task import Task

logger = logging.getLogger(__name__)


def evaluate(model: str | Path, data: Any, **settings: Any) -> dict[str, float]:
    """Evaluate a model on labeled data.

        >>> mybert.evaluate("my-sst2", [("a fine film", "1"), ("a bore", "0")])
        {"accuracy": 1.0}

    Args:
        model: Folder or Hub name; task, columns and lengths are stored in it.
        data: A file or a list of files; a `pandas.DataFrame`, a `datasets.Dataset`, an iterable of dictionaries or of
            tuples of text and label; for several data sets, a dictionary by name.
        **settings: Other options of `EvaluateSettings`: `task`, `predictions_dir`, `dtype`, ...

    Returns:
        The task's metrics; for several data sets, with the same prefixes as in `finetune`.

    Raises:
        ValueError, OSError: As `evaluate_model`.
    """
    return _measured(EvaluateArguments(model=model, data=data, **settings))


def evaluate_model(arguments: EvaluateSettings) -> dict[str, float]:
    """Evaluate a model, or predictions, and print the metrics as JSON, or write them to a file.

    Args:
        arguments: The settings.

    Returns:
        The task's metrics; for several files, with the same prefixes as in `finetune`.

    Raises:
        ValueError: If the data does not fit the task or has no labels, the model has no head for the task, the
            predictions do not fit the data, or a file exists that must not be overwritten.
        OSError: If a file cannot be read or written.
    """
    if arguments.output == STDIN:
        leave_standard_output()
    metrics = _measured(arguments)
    if arguments.output == STDIN and arguments.device.state.is_main_process:
        print(json.dumps(metrics, indent=2))
    return metrics


def _measured(arguments: EvaluateSettings) -> dict[str, float]:
    """The metrics; also writes the requested files, all or none."""
    task = arguments.resolve_task()
    writes = arguments.output != STDIN
    read = [*files_of(arguments.data), *filter(None, [arguments.model, arguments.predictions])]
    name, taken = Path(arguments.output).name, list[Path]()
    for written, patterns in ((arguments.predictions_dir, PREDICTION_FILES), (arguments.report_dir, REPORT_FILES)):
        if written:
            check_can_be_folder(written)
            there = [file for pattern in patterns for file in Path(written).glob(pattern)]
            check_output_files(there, arguments.overwrite, read)
            taken += [Path(written, name if fnmatch(name, pattern) else pattern) for pattern in patterns]
    check_output_files([arguments.output] if writes else [], arguments.overwrite, [*read, *taken])
    folders = {Path(name).resolve() for name in (arguments.report_dir, arguments.predictions_dir) if name}
    with outputs_together() as open_output:
        is_writer = arguments.device.state.is_main_process
        opened = {folder: open_output(folder, files=(), overwrite=True) for folder in folders if is_writer}
        target = open_output(arguments.output, overwrite=arguments.overwrite) if writes and is_writer else None
        with torch_threads(arguments.threads):
            task, data, predictions, metrics = _answered(arguments, task)
        if is_writer and arguments.report_dir:
            folder = opened[Path(arguments.report_dir).resolve()]
            for name, part in data.items():
                write_reports(task, predictions[name], part, folder, f"_{name}" if name else "")
        if is_writer and arguments.predictions_dir:
            folder = opened[Path(arguments.predictions_dir).resolve()]
            for name, part in data.items():
                write_predictions(task, predictions[name], part.examples, folder, f"_{name}" if name else "")
        if target:
            write_json(target, metrics)
    return metrics


def _answered(
    arguments: EvaluateSettings, task: Task
) -> tuple[Task, dict[str, TaskData], dict[str, Sequence[Any]], dict[str, float]]:
    """The task as the model records it; data and predictions by name; the metrics."""
    if arguments.predictions:
        source = Source.of(arguments.data[0])
        examples = read_examples(task, source, arguments.skip_empty)
        found = read_predictions(task, Path(arguments.predictions), examples, source)
        return task, {"": TaskData(examples, {}, source)}, {"": found}, task.measures(found, examples).scores()
    options = arguments.dtype, arguments.engine
    model = load_finetuned_model(task, arguments.checkpoint, arguments.device.state.device, *options)
    task, data = model.task, model.read(evaluation_names(model.task, arguments.data), arguments.skip_empty)
    for part in data.values():
        for line in long_text_lines(task, len(part.examples), part.cut, part.windowed):
            logger.warning("%s: %s", part.source, line)
    metrics, predictions = model.measure(data, arguments.batch_size)
    for name, part in data.items():
        calibration = calibrator_of(task).measure(predictions[name], part.examples)
        metrics |= {metric_of(name, key): value for key, value in calibration.items()}
    return task, data, predictions, metrics


def _chosen_features(arguments: FeaturesSettings, checkpoint: Checkpoint) -> tuple[str, Features]:
    """The features that the settings name, or the states of a layer; a ValueError if the model has no such layer."""
    layer = arguments.layer
    if layer is None:
        return arguments.features_name, FEATURES[arguments.features_name]
    depth = checkpoint.config.num_hidden_layers
    expected = f"-{depth + 1} to {depth}: {checkpoint.name} has the embeddings (0) and {depth} layers"
    check_number("layer", layer, Range(expected, -depth - 1, depth))
    layer %= depth + 1
    return f"layer {layer}", Features(layer, layer + 1)


def extract_features(arguments: FeaturesSettings) -> dict[str, int]:
    """Write the features of every token of texts.

    Lines and rows without a text are left out. The others keep their number in the input, from 0: `index` in JSON
    lines, `rows` (texts,) in safetensors.

    With `pooling` there is one vector per text: as JSON lines `index`, `text` and `features`, as safetensors
    `features` (texts, F). They equal those of sentence-transformers for the same folder: `"own"` with the settings
    saved there (pooling, normalization, length, prompt, lower case), the others without normalization.

    Otherwise, JSON lines have one text per line: `index`, `text`, and `tokens`, each with `token`, `start` and `end`
    (its characters in the text, of a pair in its sentence; 0 for special tokens), `sentence` (1 in the second sentence
    of a pair, otherwise 0) and `features`. Safetensors have the tokens of all texts concatenated: `features` (T, F);
    `input_ids` (T,); `offsets` (T, 2), the character range of each token, end exclusive; `sentences` (T,), 1 in the
    second sentence of a pair; and `text_starts` (texts + 1,), the index of the first token of each text.

    Args:
        arguments: The settings.

    Returns:
        `texts`, `tokens`, `size` of the features, and `cut`, the number of truncated texts.

    Raises:
        ValueError: If there is no text, the number of weights is not that of the layers, or the output exists.
        OSError: If a file cannot be read or written.
    """
    with torch_threads(arguments.threads):
        return _extracted(arguments)


def _extracted(arguments: FeaturesSettings) -> dict[str, int]:
    """What `extract_features` writes and returns."""
    checkpoint = Checkpoint(arguments.model)
    check_output_files([arguments.output], arguments.overwrite, [*files_of(arguments.text), checkpoint.name])
    check_available(checkpoint.name)
    name, features = _chosen_features(arguments, checkpoint)
    reading = DocumentSettings(encoding=arguments.encoding, text_column=arguments.text_column)
    texts = {number: replace_lone_surrogates(text) for number, text in Corpus(arguments.text, reading).texts()}
    tokenizer = load_tokenizer(checkpoint)
    states = features.states(checkpoint.config.num_hidden_layers)
    if arguments.weights and len(arguments.weights) != len(states):
        raise ValueError(f"{len(arguments.weights)} weights; expected {len(states)}, one for each layer of {name}.")
    encoder = _encoder(arguments, checkpoint, name, states)
    settings = _sentence_settings(arguments, checkpoint)
    longest = min(longest_sequence(encoder.config) or 512, tokenizer.model_max_length)
    max_length = arguments.max_length or min(settings.max_length or longest, longest)
    check_max_length(max_length, checkpoint.name, encoder.config)
    pairs = (settings.text(line).rsplit(PAIR_SEPARATOR, 1) for line in texts.values())
    encodings = [encode_and_truncate(tokenizer, [pair], max_length, return_offsets_mapping=True) for pair in pairs]
    cut = sum(len(encoding.too_long) for encoding in encodings)
    if cut:
        logger.warning("%d of %d texts are longer than max_length (%d): truncated.", cut, len(texts), max_length)
    names = tokenizer.model_input_names
    sequences = [{name: encoding.inputs[name][0] for name in names} for encoding in encodings]
    types = dict(zip(texts, (sequence.get("token_type_ids", ()) for sequence in sequences), strict=True))
    pair = next((number for number, values in types.items() if any(values)), None)
    if pair is not None and getattr(encoder.config, "type_vocab_size", 2) == 1:
        raise SettingError.worded(
            "{text} {}: the text with index {} is a pair (|||), with two token types; {} has 1 (type_vocab_size).",
            ", ".join(map(str, arguments.text)),
            pair,
            checkpoint.name,
        )
    found = hidden_states(encoder, tokenizer, sequences, states, arguments.batch_size)
    weights = torch.tensor(arguments.weights) if arguments.weights else None
    rows = (combine(torch.from_numpy(row), features, weights).numpy() for row in found)
    vectors = (settings.vector(row) for row in rows)
    output = Path(arguments.output)
    with output_to(output, overwrite=arguments.overwrite) as path:
        if output.suffix.lower() == ".jsonl":
            values: Iterator[Any]
            key, values = "tokens", token_features(encodings, tokenizer, rows)
            if arguments.pooling:
                key, values = "features", (rounded_values(vector, 7) for vector in vectors)
            with path.open("w", encoding="utf-8") as file:
                for (index, text), value in zip(texts.items(), values, strict=True):
                    file.write(json_line({"index": index, "text": text, key: value}) + "\n")
        else:
            pooled = {"pooling": settings.pooling} if arguments.pooling else {}
            tensors = {"features": np.stack(list(vectors))} if pooled else token_tensors(encodings, rows)
            tensors["rows"] = np.array(list(texts), dtype=np.int64)
            save_file(tensors, path, {"model": checkpoint.name, "features": name} | pooled)
    whole = combine(torch.zeros(len(states), encoder.config.hidden_size), features).numel()
    size = min(settings.size or whole, whole)
    tokens = sum(len(encoding.sides[0]) for encoding in encodings)
    logger.info("%s: %d texts, %d tokens, %d features each.", output, len(texts), tokens, size)
    return {"texts": len(texts), "tokens": tokens, "size": size, "cut": cut}


def _encoder(arguments: FeaturesSettings, checkpoint: Checkpoint, name: str, states: list[int]) -> Any:
    """The encoder that computes some states, in PyTorch or in OpenVINO, whose graphs have those of the last layer."""
    is_last = states == [checkpoint.config.num_hidden_layers]
    # A folder of a head's model has a graph of the head's outputs.
    needs_weights = not is_last or bool(heads_of(checkpoint.config) - {""})
    is_free = arguments.engine == "auto" and not checkpoint.has_only_graph
    engine: Engine = "torch" if is_free and needs_weights else arguments.engine
    in_openvino = runs_in_openvino(checkpoint, engine, arguments.dtype, arguments.device.state.device)
    if in_openvino and not is_last:
        raise SettingError.worded(
            "{} needs the states of other layers than the last, which OpenVINO does not have; expected "
            "{features='last'}, or a folder with weights.",
            name,
        )
    if in_openvino:
        return load_encoder_graph(checkpoint, arguments.dtype)
    return load_encoder(checkpoint.name, arguments.device.state.device, arguments.dtype)


def _sentence_settings(arguments: FeaturesSettings, checkpoint: Checkpoint) -> SentenceSettings:
    """How the states of a text become a vector; of token features, only the length is used."""
    if arguments.pooling == "own":
        return sentence_settings(checkpoint.local_folder(COMPANIONS))
    return SentenceSettings(max_length=128) if arguments.pooling is None else SentenceSettings(arguments.pooling)
