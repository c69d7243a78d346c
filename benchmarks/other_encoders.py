"""Encoders of transformers with `mybert.speed_up`, compared with stock ones, ONNX Runtime and OpenVINO.

    python -m mybert.benchmarks.other_encoders
    python -m mybert.benchmarks.other_encoders roberta modernbert --workloads sentences --compiled --training

Random weights, the same for all, and the sizes of transformers' default configurations (BERT-base, but ELECTRA-small
and the 22 layers of ModernBERT-base). Each runtime has a process of its own; they take turns. The float32 states at
tokens must agree with stock ones. "sorted" runs groups of eight rows of similar length. `--training` adds a training
step: loss and gradients of all parameters, which must agree, without an optimizer.
"""

import argparse
import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoConfig, AutoModel
from transformers.utils import logging

from ..encoders import ENCODER_TYPES, speed_up
from ..files.processes import no_warnings, own_process
from ..modeling_mybert import MyBertConfig, MyBertModel
from ..pipelines.openvino_model import import_openvino, openvino_core
from ..studies.timing import in_turns
from .harness import PEER, Batch, check_agreement, count, flag, random_batch, script, speed_table
from .model_speed import INFERENCE, TOLERANCE, differences
from .runtimes import Encoder, RuntimeEncoders, encoder_of

OWN = "mybert.speed_up"
STEP = ", training step"  # end of a side's name
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_EXAMPLE = (7, 9)  # lengths of the batch that a model is exported with


def stock_encoder(settings: Mapping[str, Any]) -> Any:
    """An encoder of transformers with random weights, of a type and with these fields of its configuration."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**settings)
    return AutoModel.from_config(config).eval()  # with SDPA, which MPNet lacks


def pytorch_sides(
    settings: Mapping[str, Any], threads: int, folder: Path, compiled: bool = False, training: bool = False
) -> dict[str, Any]:
    """Stock, sped up and, for BERT, mybert's own model."""
    torch.set_num_threads(threads)
    stock = stock_encoder(settings)
    models = {PEER: stock, OWN: speed_up(copy.deepcopy(stock))}
    if settings["model_type"] == "bert":
        models["mybert"] = MyBertModel(MyBertConfig.from_dict(stock.config.to_dict())).eval()
        models["mybert"].load_state_dict(stock.state_dict())
    sides = {name: encoder_of(model) for name, model in models.items()}
    if compiled:
        sides["transformers, compiled"] = encoder_of(torch.compile(stock, dynamic=True))
    if training:
        for name, model in models.items():
            gradients = gradients_of(model, random_batch(_EXAMPLE)), gradients_of(stock, random_batch(_EXAMPLE))
            check_agreement(f"the gradients of {name}", *gradients, TOLERANCE, relative=True)
            sides[f"{name}{STEP}"] = partial(gradient_step, model)
    return sides


def gradient_step(model: Any, batch: Batch) -> torch.Tensor:
    """The hidden states of a batch, whose loss and gradients are computed, without dropout."""
    model.zero_grad()
    states: torch.Tensor = model(**batch).last_hidden_state
    (states * batch["attention_mask"][..., None]).square().mean().backward()
    return states.detach()


def gradients_of(model: Any, batch: Batch) -> torch.Tensor:
    """All gradients of a training step in one vector."""
    gradient_step(model, batch)
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


class _States(torch.nn.Module):
    """An encoder that returns only the last hidden states."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return states


def onnx_side(settings: Mapping[str, Any], threads: int, folder: Path) -> dict[str, Encoder]:
    """ONNX Runtime with the exported graph."""
    import onnxruntime

    file, example = folder / "encoder.onnx", random_batch(_EXAMPLE)
    shapes = {name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in example}
    model = _States(stock_encoder(settings))
    torch.onnx.export(model, (), str(file), kwargs=example, dynamic_shapes=shapes, dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def encode(batch: Batch) -> torch.Tensor:
        return torch.from_numpy(session.run(None, {name: batch[name].numpy() for name in names})[0])

    return {"ONNX Runtime": encode}


def openvino_side(settings: Mapping[str, Any], threads: int, folder: Path) -> dict[str, Encoder]:
    """OpenVINO in float32."""
    openvino = import_openvino()
    with torch.no_grad(), no_warnings():
        graph = openvino.convert_model(_States(stock_encoder(settings)), example_input=random_batch(_EXAMPLE))
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    compiled = openvino_core().compile_model(graph, "CPU", {**hints, "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()

    def encode(batch: Batch) -> torch.Tensor:
        results = request.infer({name: tensor.numpy() for name, tensor in batch.items()}, share_inputs=True)
        return torch.from_numpy(results[0])

    return {"OpenVINO": encode}


def compare_type(settings: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """Print a table for each workload of one type of encoder."""
    threads = torch.get_num_threads()
    options = {"compiled": arguments.compiled, "training": arguments.training}
    runtimes: dict[str, Callable[..., Any]] = {"PyTorch": partial(pytorch_sides, **options)}
    runtimes |= {"ONNX Runtime": onnx_side, "OpenVINO": openvino_side}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        sides: dict[str, Callable[..., Any]] = {}
        for name, make in runtimes.items():
            try:
                ask = stack.enter_context(own_process(name, RuntimeEncoders, make, settings, threads, folder))
            except Exception as error:  # not installed, or no graph of this type of encoder
                print(f"{name} does not run {settings['model_type']}: {str(error).splitlines()[0][:200]}\n")
                continue
            sides |= dict.fromkeys(ask("names"), ask)
        for workload in arguments.workloads:
            title, lengths = INFERENCE[workload]
            is_token = random_batch(lengths)["attention_mask"].bool().numpy()
            runs = {name: partial(_ask, ask, name, lengths, False) for name, ask in sides.items()}
            if not is_token.all():
                runs |= {
                    f"{name}, sorted": partial(_ask, ask, name, lengths, True)
                    for name, ask in sides.items()
                    if "mybert" not in name and not name.endswith(STEP)
                }
            notes = differences({name: run("states") for name, run in runs.items()}, is_token)
            seconds = in_turns({name: partial(run, "seconds") for name, run in runs.items()}, arguments.repeats)
            print(f"## {settings['model_type']}: {title} ({is_token.mean():.0%} full)\n")
            steps = {name: seconds.pop(name) for name in sides if name.endswith(STEP)}
            tables = [speed_table(seconds, PEER, notes), *([speed_table(steps, f"{PEER}{STEP}")] if steps else [])]
            for table in tables:
                if settings["model_type"] == "mpnet":  # for which transformers has no SDPA
                    table = table.replace(PEER, "transformers (eager)")
                print(f"{table}\n", flush=True)


def _ask(ask: Callable[..., Any], name: str, lengths: tuple[int, ...], is_sorted: bool, method: str) -> Any:
    return ask(method, name, lengths, is_sorted)


@script(
    flag("types", nargs="*", metavar="TYPE", default=list(ENCODER_TYPES), help=f"of {', '.join(ENCODER_TYPES)}"),
    flag("--workloads", nargs="+", choices=INFERENCE, default=["sentences", "skewed", "dense", "query"]),
    flag("--layers", type=count, help="number of layers (default: as in transformers' configuration)"),
    flag("--tiny", action="store_true", help="two layers of width 32"),
    flag("--compiled", action="store_true", help="also torch.compile"),
    flag("--training", action="store_true", help="also a training step"),
    flag("--repeats", type=count, default=7, help="timed calls of each; the medians are reported"),
)
def main(arguments: argparse.Namespace) -> None:
    """Compare the types one after the other."""
    logging.set_verbosity_error()
    for model_type in arguments.types:
        if model_type not in ENCODER_TYPES:
            raise ValueError(f"TYPE is {model_type}; expected {', '.join(ENCODER_TYPES)}.")
        settings: dict[str, Any] = {"model_type": model_type, **(TINY if arguments.tiny else {})}
        if model_type == "distilbert" and arguments.tiny:
            names = {"hidden_size": "dim", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"}
            settings = {names.get(name, name): value for name, value in settings.items()}
        if arguments.layers is not None or arguments.tiny:
            layers = settings.pop("num_hidden_layers", None) if arguments.layers is None else arguments.layers
            settings.pop("num_hidden_layers", None)
            settings["n_layers" if model_type == "distilbert" else "num_hidden_layers"] = layers
        compare_type(settings, arguments)


if __name__ == "__main__":
    main()
