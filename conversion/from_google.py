"""Google's checkpoints (TensorFlow 1, TF2 model garden, SavedModels) to MyBERT model folders."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file

from ..files.checkpoint import WEIGHTS_FILE, open_safetensors, read_json_object
from ..files.errors import SettingError, worded
from ..files.settings import build
from ..metrics import GOOGLE_LABELS
from ..modeling_mybert import MyBertConfig
from ..tokenization import MyBertTokenizer, load_vocab
from ..tokenization.vocab import looks_accented, looks_cased
from .google_source import ConversionPlan, GoogleSource, GoogleVariables, open_source, plan_conversion
from .key_map import ACTIVATIONS, HEADS, RATES, SIZES, SLOTS, WeightRow, find_head, name_in_model, sizes_of
from .model_folder import ModelFolder, new_model_folder
from .settings import ConvertGoogleSettings
from .tensorflow import TensorBundle
from .verification import ConversionReport, require, verify_against_google, write_conversion_report

logger = logging.getLogger(__name__)

_OPTIMIZER_FILE = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def convert_google_checkpoint(
    source: str | os.PathLike[str], output_dir: str | os.PathLike[str], head: str | None = None, **options: Any
) -> ConversionReport:
    """Convert a Google checkpoint into a complete MyBERT model folder.

    The CRC32C of every variable of the checkpoint is verified. Weights become float32.

    Args:
        source: A folder, a checkpoint prefix, a `.zip` or `.tar.gz` archive, or a SavedModel folder; TensorFlow 1
            (google-research/bert) or TF2 (model garden, TF-Hub).
        output_dir: The model folder; it is created at the end, on success.
        head: Kind of model, such as "classifier"; by default it follows from the variables.
        **options: Those of `mybert convert google`, such as `labels=["no", "yes"]`.

    Returns:
        The report, which is also in the folder as `conversion.json`, with a model card.

    Raises:
        ValueError: If anything about the source is broken, unsafe, unknown or contradictory, or `output_dir` contains
            other files.
    """
    places = {"source": source, "output_dir": output_dir}
    settings = build(ConvertGoogleSettings, {**places, "head": head, **options})
    head = find_head(head) if head else None
    with open_source(source) as found, new_model_folder(output_dir, settings.overwrite, source) as folder:
        variables = GoogleVariables(found.prefix)
        head = head or variables.head()
        config_path = Path(settings.config_file) if settings.config_file else found.config_file
        fields, decisions = _read_configuration(config_path, variables)
        if "classifier" in HEADS[head].groups:
            labels, decision = _name_labels(settings, head, fields["hidden_size"], variables)
            fields |= {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
            decisions.append(decision)
        elif settings.labels or settings.task:
            raise SettingError.worded("{head} {!r}: has no labels to name, but names were given.", head)
        try:
            config = MyBertConfig(**fields, architectures=[HEADS[head].class_name("mybert")], dtype="float32")
        except ValueError as error:
            raise ValueError(f"{config_path or found.prefix}: {error}") from error
        plan = plan_conversion(variables, config, head, settings.ignore)
        variables.bundle.verify(chain(*plan.ignored.values()))  # variables that are used are verified when read

        parameters = chain(plan.parameters(), _initialize(plan.initialized, config, settings.seed))
        tensors = {name_in_model(name, head): value for name, value in parameters}
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        del tensors
        decisions += _write_tokenizer(folder, found, variables.bundle, config, settings)
        config.save_pretrained(folder)
        step, moments = None, set[str]()
        if settings.optimizer_state:
            step, moments = _write_optimizer_state(folder / _OPTIMIZER_FILE, plan)
        ignored = {kind: tuple(key for key in keys if key not in moments) for kind, keys in plan.ignored.items()}
        report = None
        if settings.verify:
            report = require(verify_against_google(settings.source, plan, ModelFolder(folder)), output_dir)
        result = ConversionReport(
            source=settings.source,
            output=settings.output_dir,
            head=head,
            decisions=tuple(decisions),
            parameters=len(plan.used),
            initialized=tuple(row.parameter for row in plan.initialized),
            ignored={kind: keys for kind, keys in ignored.items() if keys},
            optimizer_step=step,
            verification=report,
        )
        write_conversion_report(folder, result)
    if result.initialized:
        logger.warning(f"{output_dir}: newly initialized, train before use: {', '.join(result.initialized)}.")
    return result


def _read_configuration(path: Path | None, variables: GoogleVariables) -> tuple[dict[str, Any], list[str]]:
    """Return MyBERT's fields and the decisions made; without `bert_config.json` the shapes give the fields."""
    if path is None:
        fields: dict[str, Any] = {**variables.configuration(), "hidden_act": ACTIVATIONS["gelu"]}
        return fields, ["configuration: read off the shapes, as there is no bert_config.json; activation tanh-GELU"]
    content = read_json_object(path)
    if missing := [name for name in (*SIZES, "hidden_act") if name not in content]:
        raise ValueError(f"{path}: {', '.join(missing)} is missing; is this a bert_config.json?")
    activation = content["hidden_act"]
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        template, unknown = "{}: hidden_act is {!r}; expected one of {}.", [str(activation)]
        values = (path, activation, ", ".join(ACTIVATIONS))
        raise ValueError(worded(template, *values, known=[*ACTIVATIONS], unknown=unknown))
    if content.get("embedding_size", content["hidden_size"]) != content["hidden_size"]:
        raise ValueError(f"{path}: embedding_size differs from hidden_size; this is not a BERT.")
    fields = {name: content[name] for name in (*SIZES, *RATES) if name in content}
    fields["hidden_act"] = ACTIVATIONS[activation]
    decisions = [f"activation: Google's {activation!r} is {fields['hidden_act']!r}"]
    return fields, decisions


def _name_labels(
    settings: ConvertGoogleSettings, head: str, hidden_size: int, variables: GoogleVariables
) -> tuple[list[str], str]:
    """Return the names of a classifier's classes in the order of its rows, and a note on where they come from."""
    number = variables.num_labels(hidden_size)
    if settings.task is None and not settings.labels:
        how = f"--task ({', '.join(GOOGLE_LABELS)}) or --labels gives them"
        return [f"LABEL_{row}" for row in range(number)], f"labels: the {number} classes have no names; {how}"
    if settings.task is not None:
        if settings.labels:
            raise SettingError.worded(
                "{head} {!r}: takes its labels from a task or as names, but both were given.", head
            )
        if settings.task not in GOOGLE_LABELS or head != "sequence-classification":
            known = ", ".join(GOOGLE_LABELS)
            problem = f"has no task {settings.task!r}; expected {known} for a sequence classifier, else labels"
            raise SettingError.worded("{head} {!r}: {}", head, problem)
    labels = [str(name) for name in settings.labels or GOOGLE_LABELS[str(settings.task)]]
    if len(set(labels)) < len(labels):
        raise SettingError.worded(
            "{head} {!r}: needs different names for all labels, found {}.", head, ", ".join(labels)
        )
    if variables.has("classifier") and len(labels) != number:
        problem = f"has {number} labels in the checkpoint, but {len(labels)} names were given ({', '.join(labels)})"
        raise SettingError.worded("{head} {!r}: {}", head, problem)
    order = f"Google's order of {settings.task}" if settings.task else "the order given"
    return labels, f"labels: {', '.join(labels)}, {order}"


def _initialize(rows: Iterable[WeightRow], config: MyBertConfig, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Draw parameters as a new model has them: weights N(0, initializer_range), biases 0, LayerNorm 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    for row in rows:
        shape = row.parameter_shape(sizes_of(config))
        if len(shape) == 1:
            value = torch.full(shape, 1.0 if row.parameter.endswith("LayerNorm.weight") else 0.0)
        else:
            value = torch.empty(shape).normal_(std=config.initializer_range, generator=generator)
        yield row.parameter, value.numpy()


def _write_tokenizer(
    folder: Path, found: GoogleSource, bundle: TensorBundle, config: MyBertConfig, settings: ConvertGoogleSettings
) -> list[str]:
    path = Path(settings.vocab_file) if settings.vocab_file else found.vocab_file
    do_lower_case, strip_accents = settings.do_lower_case, settings.strip_accents
    if path is None:
        logger.warning(
            f"{found.name}: there is no vocab.txt, so the model folder has no tokenizer, which other commands need "
            "(--vocab_file names one)."
        )
        return ["tokenizer: none, as there is no vocab.txt; pass vocab_file (--vocab_file)"]
    vocab = load_vocab(path)
    if len(vocab) > config.vocab_size:
        raise ValueError(f"{path}: holds {len(vocab)} pieces, vocab_size of the configuration is {config.vocab_size}.")
    if do_lower_case is None:
        do_lower_case, reason = _lower_cases(found, bundle, vocab)
    else:
        reason = "as asked for"
    decisions = [f"tokenizer: {'un' * do_lower_case}cased, {reason}"]
    if do_lower_case and strip_accents is None and looks_accented(vocab):
        strip_accents = False
        decisions.append("accents: kept, as the vocabulary has them; Google's code would strip them")
    tokenizer = MyBertTokenizer(
        path, do_lower_case=do_lower_case, strip_accents=strip_accents, model_max_length=config.max_position_embeddings
    )
    tokenizer.save_pretrained(folder)
    config.pad_token_id = tokenizer.pad_token_id  # Google's has none; 0, the default, may be a word to be trained
    if len(vocab) < config.vocab_size:
        decisions.append(f"vocabulary: {len(vocab)} pieces for {config.vocab_size} embeddings; the rest is never used")
    return decisions


def _lower_cases(found: GoogleSource, bundle: TensorBundle, vocab: Mapping[str, int]) -> tuple[bool, str]:
    """Decide whether the tokenizer lower-cases; the reason is the checkpoint's setting, the vocabulary or the name."""
    for key, info in bundle.info.items():
        if "do_lower_case" in key.split("/") and info.dtype == "bool" and not info.shape:
            return bool(bundle[key]), f"the checkpoint's {key} says so"
    cased = looks_cased(vocab)
    name = found.name.lower()
    hint = False if "uncased" in name else True if "cased" in name else None
    if cased is None:  # a script without case; the vocabulary cannot tell
        reason = "as no piece has case" if hint is None else "the name says so, and no piece has case"
        return not hint, reason
    reason = "the vocabulary holds capital letters" if cased else "the vocabulary holds (almost) no capital letters"
    if hint is not None and hint != cased:
        logger.warning(f"{found.name}: the name says {'' if hint else 'un'}cased, but {reason}; the vocabulary wins.")
    return not cased, reason


# --- the optimizer ---------------------------------------------------------------------------------------------------

# `optimizer.safetensors` holds `exp_avg.NAME` and `exp_avg_sq.NAME` for every parameter NAME of the model that was
# trained, in float32, and the number of updates as metadata `step`. A parameter without moments (Google's optimizer
# skips those without a gradient) is not in it.


def _write_optimizer_state(path: Path, plan: ConversionPlan) -> tuple[int, set[str]]:
    """Write the moments of the parameters of a plan; return the updates and the variables read."""
    bundle = plan.bundle

    def wrong(problem: str) -> ValueError:
        return ValueError(f"{bundle.prefix}: optimizer state: {problem}")

    if plan.layout == "keras":
        raise wrong("only that of Google's TensorFlow 1 optimizer can be converted")
    info = bundle.info.get("global_step")
    if info is None or info.shape or not info.dtype.startswith("int"):
        raise wrong("there is no integer global_step")
    if (step := int(bundle["global_step"])) < 0:
        raise wrong(f"global_step is {step}")
    tensors, read = {}, {"global_step"}
    for row, key in plan.used:
        for slots in ([f"{key}/{slot}" for slot in pair] for pair in SLOTS):
            there = [slot for slot in slots if slot in bundle]
            if len(there) == 1:
                raise wrong(f"{key} has only one of its two moments")
            for slot, moment in zip(there, _MOMENTS, strict=False):
                if bundle.info[slot].shape != bundle.info[key].shape:
                    raise wrong(f"{slot} has shape {bundle.info[slot].shape}; expected {bundle.info[key].shape}")
                name = name_in_model(row.parameter, plan.head)
                tensors[f"{moment}.{name}"] = row.to_parameter(plan.layout, bundle[slot])
            read.update(there)
    if not tensors:
        raise wrong("there are no variables */adam_m and */adam_v")
    save_file(tensors, path, metadata={"step": str(step)})  # of several entries the order would be random
    return step, read


def load_optimizer_state(
    path: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    """Give an optimizer the moments of a converted checkpoint, so that training continues where TensorFlow stopped.

    Args:
        path: `optimizer.safetensors`, or its model folder.
        model: The converted model; its parameter names are those in the file.
        optimizer: An Adam with the state keys `step`, `exp_avg` and `exp_avg_sq`, as `MyBertAdamW`.

    Returns:
        The number of updates made so far, from which the learning rate schedule continues.

    Raises:
        FileNotFoundError: If the file is missing.
        ValueError: If it is broken, or does not fit the model.
    """
    file = Path(path) / _OPTIMIZER_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(worded("{}: no such file; convert with {optimizer_state=True}.", file))
    # An optimizer's state dict counts the parameters through all groups.
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    places = {id(parameter): place for place, parameter in enumerate(trained)}
    states: dict[int, dict[str, torch.Tensor]] = {}
    try:
        with open_safetensors(file, "pt") as content:
            text = (content.metadata() or {}).get("step", "")
            if not text.isdecimal():
                raise ValueError(f"{file}: the step is {text!r}; expected a number.")
            left = set(content.keys())
            for name, parameter in model.named_parameters():
                keys = [f"{moment}.{name}" for moment in _MOMENTS]
                if id(parameter) not in places or not left.issuperset(keys):
                    continue
                left -= set(keys)
                moments = [content.get_tensor(key) for key in keys]
                if any(moment.shape != parameter.shape for moment in moments):
                    shapes = f"shape {tuple(moments[0].shape)}, the parameter {tuple(parameter.shape)}"
                    raise ValueError(f"{file}: {name} has moments of {shapes}.")
                # Cloned, because a mapped tensor would follow the file.
                state = dict(zip(_MOMENTS, (moment.clone() for moment in moments), strict=True))
                states[places[id(parameter)]] = {"step": torch.tensor(float(text)), **state}
    except SafetensorError as error:
        raise ValueError(f"{file}: the file cannot be read: {error}") from error
    if left:
        names = ", ".join(sorted(left)[:8])
        raise ValueError(f"{file}: {len(left)} tensors fit no trained parameter of the model: {names}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    return int(text)
