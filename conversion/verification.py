"""Verify a conversion: load the result, compare it tensor by tensor with the source, and run it once."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..metrics import google_row_order
from .google_source import open_source
from .google_variables import ConversionPlan, GoogleVariables, plan_conversion
from .key_map import HEADS, TIED
from .model_folder import ModelFolder
from .reports import TensorCheck, VerificationReport
from .tensorflow import read_tensor_bundle

_SHAPE = (2, 3, 16)  # of the batch that a model runs: texts, choices, tokens
_TOLERANCE = 1e-4  # between two implementations of one model on the same weights; measured: below 1e-5


def verify_conversion(
    source: str | os.PathLike[str], model_dir: str | os.PathLike[str], ignore: Iterable[str] = ()
) -> VerificationReport:
    """Compare a model folder with the source (or result) of its conversion.

    Every tensor is compared bit by bit, the model is loaded with `from_pretrained`, and one forward pass checks names,
    shapes and finiteness of its outputs. If the source is a model as well, both run and their outputs are compared.

    Args:
        source: Google's checkpoint (as for `convert_google_checkpoint`), or a MyBERT or BERT model folder.
        model_dir: A MyBERT or BERT model folder.
        ignore: As for `convert_google_checkpoint`.

    Raises:
        ValueError: If either side cannot be read at all. Differences do not raise errors; they are in the report.
    """
    if (Path(source) / "config.json").is_file():
        return verify_folder(ModelFolder(source), ModelFolder(model_dir))
    folder = ModelFolder(model_dir)
    config = folder.configuration()
    with open_source(source) as found:
        bundle = read_tensor_bundle(found.prefix)
        plan = plan_conversion(GoogleVariables(bundle), config, folder.head, ignore)
        return verify_against_google(str(source), plan, folder)


def verify_against_google(source: str, plan: ConversionPlan, folder: ModelFolder) -> VerificationReport:
    """Compare a model folder with the checkpoint that a plan reads; the folder may have extra tensors."""
    rows = [*(row for row, _ in plan.used), *plan.initialised]
    lacking = {row.parameter for row in rows} - {row.parameter for row in folder.rows()}  # a pooler that was not saved
    problems = _named("missing", {row.parameter for row in rows} - lacking - set(folder))
    order, notes = google_row_order(folder.labels()) if folder.head == "sequence-classification" else None, []
    checks = []
    for name, array in plan.parameters():
        if name not in folder:
            continue
        # torch warns about read-only mapped arrays; one copy at a time is cheap
        expected = torch.from_numpy(array if array.flags.writeable else array.copy())
        found = folder.read(name).float()
        check = _compare(name, expected, found)
        if not check.identical and order is not None and name.startswith("classifier.") and len(found) == len(order):
            in_order = _compare(name, expected, found[order])
            if in_order.identical:
                check = in_order
                notes.append(f"{name} is the folder's in the order of Google's code")
        checks.append(check)
    outputs = _run(folder, problems, ("missing_keys", "mismatched_keys"))
    return _report(source, folder, checks, problems, outputs, notes)


def verify_folder(source: ModelFolder, folder: ModelFolder) -> VerificationReport:
    """Compare two model folders, weights and outputs."""
    names = set(source.parameters())
    problems = _named("missing", names - set(folder)) + _named("unexpected", set(folder) - names - TIED.keys())
    checks = [_compare(name, source.read(name), folder.read(name)) for name in source.parameters() if name in folder]
    expected = _run(source, [])  # may have tensors that its head does not use
    outputs = _run(folder, problems, ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name in expected.keys() & outputs.keys():
        difference = (expected[name] - outputs[name]).abs().max().item()
        if not difference <= _TOLERANCE:
            problems.append(f"{name} differs by {difference:g} between the two models")
    return _report(str(source.path), folder, checks, problems, outputs)


def require(report: VerificationReport, model_dir: str | os.PathLike[str]) -> VerificationReport:
    """Return the report under the name that the folder will have; raise an error if something is wrong."""
    if not report.ok:
        raise ValueError(f"{model_dir}: the conversion is wrong: {'; '.join(report.problems)}")
    return replace(report, model_dir=str(model_dir))


def _report(
    source: str,
    folder: ModelFolder,
    checks: list[TensorCheck],
    problems: list[str],
    outputs: dict[str, torch.Tensor],
    notes: Sequence[str] = (),
) -> VerificationReport:
    different = [check for check in checks if not check.identical]
    if different:
        names = ", ".join(f"{check.parameter} by {check.max_abs_diff:g}" for check in different[:8])
        problems.append(f"{len(different)} tensors differ from the source, {names}")
    shapes = {name: tuple(output.shape) for name, output in outputs.items()}
    return VerificationReport(source, str(folder.path), tuple(checks), shapes, tuple(problems), tuple(notes))


def _named(problem: str, names: set[str]) -> list[str]:
    return [f"{problem}: {', '.join(sorted(names)[:8])}"] if names else []


def _compare(name: str, expected: torch.Tensor, found: torch.Tensor) -> TensorCheck:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return TensorCheck(name, tuple(found.shape), float("inf"), False)
    identical = torch.equal(expected.contiguous().view(torch.uint8), found.contiguous().view(torch.uint8))
    difference = 0.0 if identical else (expected.double() - found.double()).abs().max().item()
    return TensorCheck(name, tuple(found.shape), difference, identical)


def example_batch(config: Any, head: str, shape: tuple[int, int, int]) -> dict[str, torch.Tensor]:
    """Draw inputs of a head for a batch of (texts, choices, tokens); all rows but the first end in padding."""
    *texts, length = shape if head == "multiple-choice" else (shape[0], shape[2])
    length = min(length, config.max_position_embeddings)
    generator = torch.Generator().manual_seed(length)
    lengths = torch.randint(1, max(length, 2), (*texts, 1), generator=generator)
    lengths.view(-1)[0] = length
    return {
        "input_ids": torch.randint(config.vocab_size, (*texts, length), generator=generator),
        "attention_mask": (torch.arange(length) < lengths).long(),
        "token_type_ids": torch.randint(config.type_vocab_size, (*texts, length), generator=generator),
    }


def _run(folder: ModelFolder, problems: list[str], kinds: Iterable[str] = ()) -> dict[str, torch.Tensor]:
    """Run a model on a random batch; append problems, of those in loading only `kinds`."""
    model, report = folder.load("MyBert" if folder.config["model_type"] == "mybert" else "Bert")
    for kind in kinds:
        if found := report.get(kind):
            name = type(model).__name__
            problems.append(f"{name}.from_pretrained reports {kind} {sorted(map(str, found))[:8]}")
    batch = example_batch(model.config, folder.head, _SHAPE)
    mask = batch["attention_mask"]
    sizes = {name: getattr(model.config, name) for name in ("vocab_size", "hidden_size", "num_labels")}
    sizes |= {"batch": mask.shape[0], "length": mask.shape[-1], "choices": mask.shape[1]}
    with torch.no_grad():
        result = model(**batch)
    outputs = {}
    for name, fields in HEADS[folder.head].outputs.items():
        if getattr(result, name) is None:
            continue  # the output of a pooler that was not saved
        outputs[name] = result[name]
        expected = tuple(sizes[field] if isinstance(field, str) else field for field in fields)
        if outputs[name].shape != expected:
            problems.append(f"{name} has shape {tuple(outputs[name].shape)}, expected {expected}")
        if not torch.isfinite(outputs[name]).all():
            problems.append(f"{name} is not finite")
        if "length" in fields:  # outputs at padding may differ
            padding = (mask == 0).view(*mask.shape, *(1,) * (len(fields) - 2))
            outputs[name] = outputs[name].masked_fill(padding, 0)
    return outputs
