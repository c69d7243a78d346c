"""Verify a conversion: load the result, compare it tensor by tensor with the source, and run it once."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import modeling_mybert as networks
from ..metrics import google_row_order
from .errors import ConversionError
from .google_source import open_source
from .google_variables import ConversionPlan, GoogleVariables, plan_conversion
from .key_map import GROUPS, HEADS, TIED
from .model_folder import ModelFolder
from .tensorflow import TensorBundle, read_tensor_bundle

_BATCH, _LONGEST, _CHOICES = 2, 16, 3
_TOLERANCE = 1e-4  # between two implementations of one model on the same weights; measured: below 1e-5


@dataclass(frozen=True)
class TensorCheck:
    parameter: str
    shape: tuple[int, ...]
    max_abs_diff: float  # 0 if the bits agree
    identical: bool  # in all bits


@dataclass(frozen=True)
class VerificationReport:
    """The result of a verification.

    Args:
        source: The source that the model was compared with.
        model_dir: The folder that was verified.
        tensors: One comparison per parameter that the source has.
        outputs: Shapes of the outputs of one forward pass.
        problems: The problems found, one sentence each; empty if there are none.
        notes: Notes that are not problems.
    """

    source: str
    model_dir: str
    tensors: tuple[TensorCheck, ...]
    outputs: dict[str, tuple[int, ...]]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __str__(self) -> str:
        identical = sum(check.identical for check in self.tensors)
        values = sum(int(np.prod(check.shape)) for check in self.tensors)
        worst = max((check.max_abs_diff for check in self.tensors), default=0.0)
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.outputs.items())
        lines = [
            f"tensors      {len(self.tensors)} compared, {identical} identical in every bit ({values:,} values)",
            f"difference   {worst:g} at most",
            f"forward      {shapes or 'not run'}",
            *(f"note         {note}" for note in self.notes),
            f"result       {'verified' if self.ok else 'WRONG'}",
        ]
        return "\n".join([*lines, *(f"             {problem}" for problem in self.problems)])


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
        ConversionError: If either side cannot be read at all. Differences do not raise errors; they are in the report.
    """
    if (Path(source) / "config.json").is_file():
        return verify_folder(ModelFolder(source), ModelFolder(model_dir))
    folder = ModelFolder(model_dir)
    config = folder.configuration()
    with open_source(source) as found:
        bundle = read_tensor_bundle(found.prefix)
        plan = plan_conversion(GoogleVariables(bundle), config, folder.head, ignore)
        return verify_against_google(str(source), bundle, plan, folder)


def verify_against_google(
    source: str, bundle: TensorBundle, plan: ConversionPlan, folder: ModelFolder
) -> VerificationReport:
    """Compare a model folder with the checkpoint that a plan reads; the folder may have extra tensors."""
    rows = [*(row for row, _ in plan.used), *plan.initialised]
    lacking = {row.parameter for row in rows} - {row.parameter for row in folder.rows()}  # a pooler that was not saved
    problems = _named("missing", {row.parameter for row in rows} - lacking - set(folder))
    order, notes = google_row_order(folder.labels()) if folder.head == "sequence-classification" else None, []
    checks = []
    for name, array in _writable(plan.parameters(bundle)):
        if name not in folder:
            continue
        expected, found = torch.from_numpy(array), folder.read(name).float()
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
        raise ConversionError(f"{model_dir}: the conversion is wrong: {'; '.join(report.problems)}")
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


def _writable(arrays: Iterable[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    # torch warns about read-only mapped arrays; one copy at a time is cheap.
    return ((name, array if array.flags.writeable else array.copy()) for name, array in arrays)


def _compare(name: str, expected: torch.Tensor, found: torch.Tensor) -> TensorCheck:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return TensorCheck(name, tuple(found.shape), float("inf"), False)
    identical = torch.equal(expected.contiguous().view(torch.uint8), found.contiguous().view(torch.uint8))
    difference = 0.0 if identical else (expected.double() - found.double()).abs().max().item()
    return TensorCheck(name, tuple(found.shape), difference, identical)


def _run(folder: ModelFolder, problems: list[str], kinds: Iterable[str] = ()) -> dict[str, torch.Tensor]:
    """Run a model on random ids, the second sequence padded; append problems, of those in loading only `kinds`."""
    import transformers

    head = HEADS[folder.head]
    is_ours = folder.config["model_type"] == "mybert"
    model_class: Any = getattr(networks if is_ours else transformers, f"{'My' * is_ours}Bert{head.class_suffix}")
    options = {"dtype": torch.float32, "output_loading_info": True}
    if folder.head == "encoder":
        options["add_pooling_layer"] = GROUPS["pooler"][0].parameter in folder
    model, info = model_class.from_pretrained(folder.path, **options)
    for kind in kinds:
        if info.get(kind):
            problems.append(
                f"{model_class.__name__}.from_pretrained reports {kind} {sorted(map(str, info[kind]))[:8]}"
            )
    model.eval()
    config = model.config
    sizes = {name: getattr(config, name) for name in ("vocab_size", "hidden_size", "num_labels")}
    sizes |= {"batch": _BATCH, "length": min(_LONGEST, config.max_position_embeddings), "choices": _CHOICES}
    shape = (sizes["batch"], *((_CHOICES,) if "choices" in head.outputs.get("logits", ()) else ()), sizes["length"])
    ids = torch.randint(config.vocab_size, shape, generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[-1, ..., (sizes["length"] + 1) // 2 :] = 0
    with torch.no_grad():
        result = model(input_ids=ids, attention_mask=mask)
    outputs = {}
    for name, fields in head.outputs.items():
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
