"""Google's checkpoints (TensorFlow 1, TF2 model garden, SavedModels) to MyBERT model folders, and back."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from ..hub_card import CardContent, write_card
from ..modeling_mybert import MyBertConfig
from ..tokenization import MyBertTokenizer, load_vocab
from ..tokenization.vocab import looks_accented, looks_cased
from .errors import ActivationError, ConfigurationError, HeadError, ModelFolderError, VocabularyError
from .google_variables import GoogleVariables, Plan, make_plan, optimizer_rows
from .key_map import GROUPS, HEADS, Row, find_head, name_in_model, sizes_of
from .model_folder import WEIGHTS, ModelFolder, new_folder, read_json, state_dict_names, write_json
from .optimizer_state import OPTIMIZER_FILE, save_optimizer_state
from .sources import Source, open_source
from .tensor_bundle import TensorBundle, read_tensor_bundle, write_tensor_bundle
from .verification import VerificationReport, require, verify_against_google, verify_conversion

logger = logging.getLogger(__name__)

REPORT_FILE = "conversion.json"
MODEL_CARD = "README.md"
# Activations that Google's code computes, by its name; its "gelu" is the tanh form.
_ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_GOOGLES_NAMES = {name: google for google, name in _ACTIVATIONS.items()} | {"gelu_new": "gelu", "gelu_fast": "gelu"}
_SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "type_vocab_size", "vocab_size",
)  # fmt: skip
_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
_LAYER_NORM_EPS = 1e-12


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did.

    Args:
        source: What was converted.
        output: Where the result is.
        head: Kind of model, a key of `key_map.HEADS`.
        decisions: What was decided and why, one sentence each.
        parameters: Number of parameters taken over.
        initialised: Parameters that the source does not have; they are newly initialised and want training.
        ignored: Variables of the source that were left out, by kind.
        optimizer_step: Number of updates that the optimizer state belongs to, if it was taken over.
        verification: The proof, if it was asked for.
    """

    source: str
    output: str
    head: str
    decisions: tuple[str, ...]
    parameters: int
    initialised: tuple[str, ...] = ()
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    optimizer_step: int | None = None
    verification: VerificationReport | None = None

    def __str__(self) -> str:
        """Give a small table."""
        lines = [f"{self.source} -> {self.output}", f"head         {self.head}"]
        lines += [f"decided      {decision}" for decision in self.decisions]
        lines.append(f"taken over   {self.parameters} parameters")
        if self.initialised:
            lines.append(f"initialised  {', '.join(self.initialised)} (not in the source; train them before use)")
        lines += [f"ignored      {len(names)} of kind {kind!r}" for kind, names in self.ignored.items()]
        if self.optimizer_step is not None:
            lines.append(f"optimizer    state after {self.optimizer_step} updates")
        return "\n".join(lines + ([str(self.verification)] if self.verification else []))


def convert_google_checkpoint(
    source: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    head: str | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    labels: Sequence[str] | None = None,
    optimizer: bool = False,
    ignore: Sequence[str] = (),
    verify: bool = True,
    seed: int = 0,
) -> ConversionReport:
    """Turn a checkpoint of Google's into a complete MyBERT model folder.

    Every byte of the checkpoint that belongs to a variable is checked against its CRC32C. Weights become float32.

    Args:
        source: A folder, a checkpoint prefix, a `.zip` or `.tar.gz` archive, or a SavedModel folder; TensorFlow 1
            (google-research/bert) or TF2 (model garden, TF-Hub).
        output_dir: The model folder; files of the same names are replaced, at the end and only if all went well.
        head: `pretraining`, `masked-lm`, `next-sentence`, `sequence-classification` (or `classifier`),
            `token-classification`, `multiple-choice`, `question-answering` (or `squad`) or `encoder`. By default the
            variables tell; token classification and multiple choice look like a classifier and have to be named. A
            head that the checkpoint does not have is newly initialised, and the report says so.
        config_file: `bert_config.json`; looked for beside the checkpoint and in the folder above. A TF2 checkpoint can
            do without: its shapes tell everything but dropout.
        vocab_file: `vocab.txt`; looked for likewise. Without one the folder gets no tokenizer, with a warning.
        do_lower_case: Whether the tokenizer lower-cases; by default the checkpoint, the vocabulary or the name tell.
        strip_accents: Whether the tokenizer strips accents and takes Hangul apart; by default Google's rule, the same
            as `do_lower_case`, unless the vocabulary holds pieces that could then never occur.
        labels: Names of the labels in the order of the classifier's rows.
        optimizer: Whether to write `optimizer.safetensors` with Adam's moments and the step (see
            `load_optimizer_state`).
        ignore: Regular expressions for checkpoint keys that may be left out although nothing is known of them.
        verify: Whether to prove the result with `verify_conversion`.
        seed: Seed of newly initialised parameters.

    Returns:
        What was done; the folder holds it as `conversion.json`, beside a model card.

    Raises:
        ConversionError: A `ValueError`, if anything about the source is broken, unsafe, unknown or contradictory.
    """
    with open_source(source) as found, new_folder(output_dir) as folder:
        bundle = read_tensor_bundle(found.prefix)
        variables = GoogleVariables(bundle)
        head = find_head(head) if head else variables.head()
        config_path = Path(config_file) if config_file else found.config_file
        fields, decisions = _read_configuration(config_path, variables)
        config = _make_config(config_path or found.prefix, fields, head, labels, variables)
        plan = make_plan(variables, config, head, ignore)
        left_out = [key for keys in plan.ignored.values() for key in keys]
        bundle.verify(left_out)  # what is taken over is verified when it is read

        parameters = dict(plan.parameters(bundle))
        parameters |= _initialise(plan.initialised, config, seed)
        save_file(state_dict_names(iter(parameters.items()), head), folder / WEIGHTS, metadata={"format": "pt"})
        del parameters
        config.save_pretrained(folder)
        step: int | None = None
        rows: list[tuple[Row, str, str]] = []
        if optimizer:
            step, rows = optimizer_rows(plan, bundle)
            save_optimizer_state(folder / OPTIMIZER_FILE, step, _moments(rows, plan, bundle))
        decisions += _write_tokenizer(folder, found, bundle, config, vocab_file, do_lower_case, strip_accents)
        report = None
        if verify:
            report = require(verify_against_google(str(source), bundle, plan, ModelFolder(folder)), output_dir)
        result = ConversionReport(
            source=str(source),
            output=str(output_dir),
            head=head,
            decisions=tuple(decisions),
            parameters=len(plan.used),
            initialised=tuple(row.parameter for row in plan.initialised),
            ignored=_still_ignored(plan, rows),
            optimizer_step=step,
            verification=report,
        )
        write_report(folder, result)
    if result.initialised:
        logger.warning(f"{output_dir}: newly initialised, train before use: {', '.join(result.initialised)}.")
    return result


def write_report(folder: Path, report: ConversionReport) -> None:
    """Write `conversion.json`, and a model card unless the model brought its own."""
    write_json(folder / REPORT_FILE, asdict(report))
    if (folder / MODEL_CARD).exists():
        return
    untrained = ", ".join(f"`{name}`" for name in report.initialised)
    write_card(
        folder,
        CardContent(
            name=Path(report.output).resolve().name,
            summary=f"A BERT model converted from `{Path(report.source).resolve().name}`.",
            limits=[f"Newly initialised, to be trained before use: {untrained}."] if untrained else [],
        ),
    )


def export_google_checkpoint(
    model_dir: str | os.PathLike[str],
    prefix: str | os.PathLike[str],
    *,
    allow_other_activation: bool = False,
    verify: bool = True,
) -> ConversionReport:
    """Write a model folder as a checkpoint that Google's TensorFlow 1 code restores.

    Beside `PREFIX.index` and `PREFIX.data-*` the folder gets `bert_config.json`, `vocab.txt` and the `checkpoint`
    state file. Google's graph always has a pooler: for a head without one the folder's is written if it holds one all
    the same, else zeros, which nothing reads.

    Args:
        model_dir: A MyBERT (or BERT) model folder.
        prefix: Prefix of the checkpoint, as `out/bert_model.ckpt`; a folder (one that exists, or a name that ends in
            a slash) takes it under that name.
        allow_other_activation: Whether to write a model whose activation Google's code does not compute, with a
            warning.
        verify: Whether to read the result back and compare.

    Raises:
        ActivationError: If the activation is one that Google's code does not compute.
        ModelFolderError: If the folder is incomplete, or the model is one that Google's graph cannot express.
    """
    folder, is_folder = ModelFolder(model_dir), os.fspath(prefix).endswith(("/", os.sep))
    prefix = Path(prefix)
    if is_folder or prefix.is_dir():
        prefix /= "bert_model.ckpt"
    config = MyBertConfig.from_pretrained(folder.path)
    fields, decisions = _google_configuration(folder, config, allow_other_activation)
    rows = folder.rows()
    left_over = folder.left_over()  # which says so, before anything is written, if a parameter is missing
    pooler = {row.parameter: row for row in GROUPS["pooler"]}
    if pooler.keys() <= set(left_over):
        rows += pooler.values()
        left_over = [name for name in left_over if name not in pooler]
        decisions.append("bert/pooler is the folder's, although this head does not use it")
    decisions += _other_tokens(folder)
    tensors, vocabulary = _GoogleTensors(folder, rows, sizes_of(config)), _vocabulary_of(folder)
    if tensors.filled:
        decisions.append("bert/pooler is written as zeros: Google's graph has a pooler, this head does not")
    prefix.parent.mkdir(parents=True, exist_ok=True)
    write_tensor_bundle(prefix, tensors)
    with new_folder(prefix.parent) as beside:
        write_json(beside / "bert_config.json", fields)
        if vocabulary is None:
            decisions.append("no vocab.txt: the model folder has no tokenizer")
        else:
            (beside / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
    report = require(verify_conversion(prefix, model_dir), model_dir) if verify else None
    return ConversionReport(
        source=str(model_dir),
        output=str(prefix),
        head=folder.head,
        decisions=tuple(decisions),
        parameters=len(rows),
        ignored={"weight the head does not use": left_over} if left_over else {},
        verification=report,
    )


# --- from Google -----------------------------------------------------------------------------------------------------


def _read_configuration(path: Path | None, variables: GoogleVariables) -> tuple[dict[str, Any], list[str]]:
    """Read `bert_config.json`, or the shapes where there is none; give MyBERT's fields and what was decided."""
    if path is None:
        fields: dict[str, Any] = {**variables.configuration(), "hidden_act": _ACTIVATIONS["gelu"]}
        return fields, ["configuration: read off the shapes, as there is no bert_config.json; activation tanh-GELU"]
    content = read_json(path, ConfigurationError)
    if missing := [name for name in (*_SIZES, "hidden_act") if name not in content]:
        raise ConfigurationError(path=path, problem=f"{', '.join(missing)} is missing; is this a bert_config.json?")
    activation = content["hidden_act"]
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        problem = f"hidden_act is {activation!r}, expected one of {', '.join(_ACTIVATIONS)}"
        raise ConfigurationError(path=path, problem=problem)
    if content.get("embedding_size", content["hidden_size"]) != content["hidden_size"]:
        raise ConfigurationError(path=path, problem="embedding_size differs from hidden_size; that is no BERT")
    fields = {name: content[name] for name in (*_SIZES, *_RATES) if name in content}
    fields["hidden_act"] = _ACTIVATIONS[activation]
    decisions = [f"activation: Google's {activation!r} is {fields['hidden_act']!r}"]
    return fields, decisions


def _make_config(
    path: Path, fields: dict[str, Any], head: str, labels: Sequence[str] | None, variables: GoogleVariables
) -> MyBertConfig:
    classifies = "classifier" in HEADS[head].groups
    if labels and not classifies:
        raise HeadError(found=head, problem=f"has no labels to name, but {len(labels)} names were given")
    if classifies:
        number = variables.num_labels(fields["hidden_size"])
        if labels and variables.has("classifier") and len(labels) != number:
            problem = f"has {number} labels in the checkpoint, but {len(labels)} names were given"
            raise HeadError(found=head, problem=problem)
        names = list(labels or (f"LABEL_{index}" for index in range(number)))
        fields |= {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    try:
        return MyBertConfig(**fields, architectures=[f"MyBert{HEADS[head].class_suffix}"], dtype="float32")
    except ValueError as error:
        raise ConfigurationError(path=path, problem=str(error)) from error


def _initialise(rows: Sequence[Row], config: MyBertConfig, seed: int) -> dict[str, np.ndarray]:
    """Draw parameters as a new model has them: weights N(0, initializer_range), biases 0, LayerNorm 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    values = {}
    for row in rows:
        shape = row.parameter_shape(sizes_of(config))
        if len(shape) == 1:
            value = torch.full(shape, 1.0 if row.parameter.endswith("LayerNorm.weight") else 0.0)
        else:
            value = torch.empty(shape).normal_(std=config.initializer_range, generator=generator)
        values[row.parameter] = value.numpy()
    return values


def _still_ignored(plan: Plan, moments: list[tuple[Row, str, str]]) -> dict[str, tuple[str, ...]]:
    """Give what was left out, by kind, without the optimizer slots that were taken over."""
    taken = {slot for _, *slots in moments for slot in slots} | ({"global_step"} if moments else set())
    left = {kind: tuple(key for key in keys if key not in taken) for kind, keys in plan.ignored.items()}
    return {kind: keys for kind, keys in left.items() if keys}


def _moments(
    rows: list[tuple[Row, str, str]], plan: Plan, bundle: TensorBundle
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for row, *slots in rows:
        first, second = (row.to_parameter(plan.layout, bundle[slot]) for slot in slots)
        yield name_in_model(row.parameter, plan.head), first, second


def _write_tokenizer(
    folder: Path,
    found: Source,
    bundle: TensorBundle,
    config: MyBertConfig,
    vocab_file: str | os.PathLike[str] | None,
    do_lower_case: bool | None,
    strip_accents: bool | None,
) -> list[str]:
    path = Path(vocab_file) if vocab_file else found.vocab_file
    if path is None:
        logger.warning(f"{found.name}: there is no vocab.txt, so the model folder has no tokenizer.")
        return ["tokenizer: none, as there is no vocab.txt; pass vocab_file (--vocab_file)"]
    vocab = load_vocab(path)
    if len(vocab) > config.vocab_size:
        problem = f"holds {len(vocab)} pieces, vocab_size of the configuration is {config.vocab_size}"
        raise VocabularyError(path=path, problem=problem)
    if do_lower_case is None:
        do_lower_case, reason = _lower_cases(found, bundle, vocab)
    else:
        reason = "as asked for"
    decisions = [f"tokenizer: {'un' * do_lower_case}cased, {reason}"]
    if do_lower_case and strip_accents is None and looks_accented(vocab):
        strip_accents = False
        decisions.append("accents: kept, as the vocabulary has them; Google's code would strip them")
    tokenizer = MyBertTokenizer(
        path,
        do_lower_case=do_lower_case,
        strip_accents=strip_accents,
        model_max_length=config.max_position_embeddings,
    )
    tokenizer.save_pretrained(folder)
    if len(vocab) < config.vocab_size:
        decisions.append(f"vocabulary: {len(vocab)} pieces for {config.vocab_size} embeddings; the rest is never used")
    return decisions


def _lower_cases(found: Source, bundle: TensorBundle, vocab: Mapping[str, int]) -> tuple[bool, str]:
    """Decide whether the tokenizer lower-cases, and say why: the checkpoint's setting, the vocabulary, or the name."""
    for key, info in bundle.info.items():
        if "do_lower_case" in key.split("/") and info.dtype == "bool" and not info.shape:
            return bool(bundle[key]), f"the checkpoint's {key} says so"
    cased = looks_cased(vocab)
    name = found.name.lower()
    hint = False if "uncased" in name else True if "cased" in name else None
    if cased is None:  # a script without case; the vocabulary cannot tell
        reason = "as no piece has case" if hint is None else "the name says so, and no piece has case"
        return not hint, reason
    reason = "the vocabulary holds capital letters" if cased else "the vocabulary holds (next to) no capital letters"
    if hint is not None and hint != cased:
        logger.warning(f"{found.name}: the name says {'' if hint else 'un'}cased, but {reason}; the vocabulary wins.")
    return not cased, reason


# --- to Google -------------------------------------------------------------------------------------------------------


class _GoogleTensors(Mapping[str, np.ndarray]):
    """The parameters of a model folder under Google's names, each read when it is asked for."""

    def __init__(self, folder: ModelFolder, rows: list[Row], sizes: Mapping[str, int]) -> None:
        self._folder = folder
        self._rows = {row.google: row for row in rows}
        lacking = [row for row in GROUPS["pooler"] if row.google not in self._rows]
        self.filled = {row.google: row.variable_shape("google", sizes) for row in lacking}

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self.filled:
            return np.zeros(self.filled[name], np.float32)
        row = self._rows[name]
        return row.to_google(self._folder.read(row.parameter).float().numpy())

    def __iter__(self) -> Iterator[str]:
        return iter([*self._rows, *self.filled])

    def __len__(self) -> int:
        return len(self._rows) + len(self.filled)


def _google_configuration(
    folder: ModelFolder, config: MyBertConfig, allow_other_activation: bool
) -> tuple[dict[str, Any], list[str]]:
    """Give the fields of `bert_config.json` and what was decided.

    Raises:
        ActivationError: If Google's code does not compute the activation.
        ModelFolderError: If Google's graph cannot express the model.
    """
    decisions = []
    if config.is_decoder:
        raise ModelFolderError(path=folder.path, problem="is_decoder is true; Google's graph sees both sides")
    if not config.tie_word_embeddings and "masked LM" in HEADS[folder.head].groups:
        problem = "tie_word_embeddings is false; Google's graph uses the word embeddings as output weights"
        raise ModelFolderError(path=folder.path, problem=problem)
    activation = _GOOGLES_NAMES.get(config.hidden_act)
    if activation is None:
        if not allow_other_activation:
            names = ", ".join(_GOOGLES_NAMES)
            raise ActivationError(path=folder.path, found=config.hidden_act, expected=names)
        activation = "gelu"
        logger.warning(
            f"{folder.path}: hidden_act is {config.hidden_act!r}; Google's code will compute tanh-GELU instead."
        )
        decisions.append(f"activation: {config.hidden_act!r} becomes tanh-GELU, so outputs will differ")
    if config.layer_norm_eps != _LAYER_NORM_EPS:
        logger.warning(
            f"{folder.path}: layer_norm_eps is {config.layer_norm_eps:g}; Google's code uses {_LAYER_NORM_EPS:g}."
        )
        decisions.append(
            f"layer_norm_eps: {config.layer_norm_eps:g} becomes {_LAYER_NORM_EPS:g}, so outputs will differ"
        )
    return {"hidden_act": activation, **{name: getattr(config, name) for name in (*_SIZES, *_RATES)}}, decisions


def _other_tokens(folder: ModelFolder) -> list[str]:
    """Say where Google's tokenizer, which knows the vocabulary and whether to lower-case, makes other tokens."""
    if not (folder.path / "tokenizer.json").is_file():
        return []
    tokenizer = MyBertTokenizer.from_pretrained(folder.path)
    differences = []
    if tokenizer.strip_accents not in (None, tokenizer.do_lower_case):
        does, says = ("keeps", "strips") if tokenizer.do_lower_case else ("strips", "keeps")
        differences.append(f"accents: Google's code {says} those that this tokenizer {does}, also in Hangul")
    if not tokenizer.tokenize_chinese_chars:
        differences.append("Chinese characters: Google's code makes each a word, this tokenizer does not")
    for difference in differences:
        logger.warning(f"{folder.path}: {difference}.")
    return differences


def _vocabulary_of(folder: ModelFolder) -> list[str] | None:
    """Give the pieces in the order of their ids, or None where the folder has no tokenizer."""
    if (folder.path / "vocab.txt").is_file():
        return list(load_vocab(folder.path / "vocab.txt"))
    if (folder.path / "tokenizer.json").is_file():
        vocab = MyBertTokenizer.from_pretrained(folder.path).get_vocab()
        return sorted(vocab, key=vocab.__getitem__)
    return None
