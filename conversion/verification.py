"""Verify a conversion: load the result, compare it tensor by tensor with the source, and run it once.

The reports are printed by the commands, and saved in the new folder.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..cards import CardContent, write_card
from ..files.loading import longest_sequence
from ..files.output import write_json
from ..metrics import google_row_order
from .google_source import ConversionPlan, GoogleVariables, open_source, plan_conversion
from .key_map import HEADS, TIED
from .model_folder import ModelFolder

_SHAPE = (2, 3, 16)  # of the batch that a model runs: texts, choices, tokens
TOLERANCE = 1e-4  # between two implementations of one model on the same weights; measured: below 1e-5
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Batches on which a graph is compared with its model, truncated to the model's maximum length.
SHAPES = ((1, 1, 1), (2, 4, 7), (3, 2, 32), (1, 2, 512))

_RELATIVE_TOLERANCE = 1e-4
_SAME = 1e-5  # between MyBERT and transformers' BERT on the same weights; of the largest output, if that is above 1

REPORT_FILE = "conversion.json"
MODEL_CARD = "README.md"


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


@dataclass(frozen=True)
class ConversionReport:
    """The report of a conversion.

    Args:
        source: The source.
        output: The result's path.
        head: Kind of model, a key of `key_map.HEADS`.
        decisions: The decisions made and their reasons, one sentence each.
        parameters: Number of converted parameters.
        initialized: Parameters that the source lacks; they are newly initialized and must be trained.
        ignored: Variables of the source that were not used, by kind.
        optimizer_step: Number of updates of the optimizer state, if it was converted.
        verification: The verification, if requested.
    """

    source: str
    output: str
    head: str
    decisions: tuple[str, ...]
    parameters: int
    initialized: tuple[str, ...] = ()
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    optimizer_step: int | None = None
    verification: VerificationReport | None = None

    def __str__(self) -> str:
        lines = [f"{self.source} -> {self.output}", f"head         {self.head}"]
        lines += [f"decided      {decision}" for decision in self.decisions]
        lines.append(f"taken over   {self.parameters} parameters")
        if self.initialized:
            lines.append(f"initialized  {', '.join(self.initialized)} (not in the source; train them before use)")
        lines += [f"ignored      {len(names)} of kind {kind!r}" for kind, names in self.ignored.items()]
        if self.optimizer_step is not None:
            lines.append(f"optimizer    state after {self.optimizer_step} updates")
        return "\n".join(lines + ([str(self.verification)] if self.verification else []))


@dataclass(frozen=True)
class GraphReport:
    """An export to ONNX or OpenVINO, and its comparison with the PyTorch model.

    Args:
        source: The model folder.
        output: The output folder.
        head: Kind of model, a key of `key_map.HEADS`.
        dtype: Type of the weights, "float32" or "int8".
        shapes: Shapes of the random batches that were compared; with rows of different lengths, padded.
        differences: For each file and output the largest absolute difference from the PyTorch model over these
            batches, ignoring padding.
        texts: Number of texts of the user on which the two were compared; OpenVINO's int8 was calibrated with others,
            unless there was only one.
        differences_on_texts: For each file the largest absolute difference of any output for these.
        equal_decisions: For each file the fraction of the texts, or of their tokens, with the same highest logit;
            empty if there are no texts or the model has nothing to decide.
    """

    source: str
    output: str
    head: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    differences: dict[str, dict[str, float]]
    texts: int
    differences_on_texts: dict[str, float]
    equal_decisions: dict[str, float]

    @property
    def largest_difference(self) -> float:
        found = [value for outputs in self.differences.values() for value in outputs.values()]
        return max(*found, *self.differences_on_texts.values(), 0.0)

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) for shape in self.shapes)
        lines = [
            f"{self.source} -> {self.output}",
            f"head         {self.head}, weights in {self.dtype}",
            f"compared     with PyTorch on batches of {shapes} tokens"
            + f", and {self.texts:,} texts" * (self.texts > 0),
        ]
        for file, differences in self.differences.items():
            found = ", ".join(f"{name} {difference:.1e}" for name, difference in differences.items())
            if file in self.differences_on_texts:
                found += f"; on texts {self.differences_on_texts[file]:.1e}"
            if file in self.equal_decisions:
                found += f", {self.equal_decisions[file]:.2%} of the decisions are equal"
            lines.append(f"{file:<16} differs by at most: {found}")
        return "\n".join(lines)


def write_conversion_report(folder: Path, report: ConversionReport) -> None:
    """Write `conversion.json`, and a model card unless the source has its own."""
    write_json(folder / REPORT_FILE, asdict(report), sort_keys=True)
    if (folder / MODEL_CARD).exists():
        return
    untrained = ", ".join(f"`{name}`" for name in report.initialized)
    write_card(
        folder,
        CardContent(
            name=Path(report.output).resolve().name,
            summary=f"A BERT model converted from `{Path(report.source).resolve().name}`.",
            limits=[f"Newly initialized, to be trained before use: {untrained}."] if untrained else [],
        ),
    )


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
        plan = plan_conversion(GoogleVariables(found.prefix), config, folder.head, ignore)
        return verify_against_google(str(source), plan, folder)


def verify_against_google(source: str, plan: ConversionPlan, folder: ModelFolder) -> VerificationReport:
    """Compare a model folder with the checkpoint that a plan reads; the folder may have extra tensors."""
    rows = [*(row for row, _ in plan.used), *plan.initialized]
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
        is_comparable = expected[name].shape == outputs[name].shape  # not with another number of classes
        difference = (expected[name] - outputs[name]).abs().max().item() if is_comparable else float("inf")
        if not difference <= _SAME * max(1.0, expected[name].abs().max().item()):
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


def example_batch(
    config: Any, head: str, shape: tuple[int, int, int], inputs: Sequence[str] = INPUTS
) -> dict[str, torch.Tensor]:
    """Draw inputs of a head for a batch of (texts, choices, tokens); all rows but the first end in padding."""
    *texts, length = shape if head == "multiple-choice" else (shape[0], shape[2])
    length = min(length, longest_sequence(config) or length)
    generator = torch.Generator().manual_seed(length)
    lengths = torch.randint(1, max(length, 2), (*texts, 1), generator=generator)
    lengths.view(-1)[0] = length
    batch = {
        "input_ids": torch.randint(config.vocab_size, (*texts, length), generator=generator),
        "attention_mask": (torch.arange(length) < lengths).long(),
        "token_type_ids": torch.randint(getattr(config, "type_vocab_size", 1), (*texts, length), generator=generator),
    }
    return {name: batch[name] for name in inputs}


def _run(folder: ModelFolder, problems: list[str], kinds: Iterable[str] = ()) -> dict[str, torch.Tensor]:
    """Run a model on a random batch; append problems, of those in loading only `kinds`."""
    model, report = folder.load()
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
            problems.append(f"{name} has shape {tuple(outputs[name].shape)}; expected {expected}")
        if not torch.isfinite(outputs[name]).all():
            problems.append(f"{name} is not finite")
        if "length" in fields:  # outputs at padding may differ
            padding = (mask == 0).view(*mask.shape, *(1,) * (len(fields) - 2))
            outputs[name] = outputs[name].masked_fill(padding, 0)
    return outputs


def compare_outputs(
    model: Any,
    head: str,
    file: str,  # of the graph, for messages
    run: Callable[..., Mapping[str, Any]],
    batches: Iterable[dict[str, torch.Tensor]],
    tolerance: float,
) -> dict[str, float]:
    """Run a graph on the batches; return the largest difference of each output from the model's."""
    differences: dict[str, float] = {}
    for batch in batches:
        with torch.no_grad():
            expected = model(**batch)
        outputs = run(**batch)
        if missing := expected.keys() - outputs.keys():
            raise ValueError(f"{file} has no output {min(missing)}")
        for name, right in expected.items():
            found = torch.as_tensor(outputs[name])
            if "length" in HEADS[head].outputs[name] and found.shape == right.shape:  # ignore padding
                real = batch["attention_mask"].bool()
                found, right = found[real], right[real]
            if problem := _problem(found, right, tolerance):
                shape = tuple(batch["input_ids"].shape)
                raise ValueError(f"{file}: the conversion is wrong: {name} {problem} (batch of shape {shape})")
            differences[name] = max(_difference(found, right), differences.get(name, 0.0))
    return differences


def _problem(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> str | None:
    if found.shape != expected.shape:
        return f"has shape {tuple(found.shape)}; expected {tuple(expected.shape)}"
    if not found.isfinite().all():
        return "is not finite"
    if not torch.allclose(found, expected, rtol=_RELATIVE_TOLERANCE, atol=tolerance):
        return f"differs by {_difference(found, expected):g} from the PyTorch model"
    return None


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return (found - expected).abs().max().item()
