"""Modules that a user replaces, subclasses, patches or hooks do what they do in transformers' BERT.

Hooks that need no rows do not prevent packing.
"""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from transformers.integrations.neftune import neftune_post_forward_hook

from mybert.modeling_mybert.hooks_mybert import is_changed

TRUNK = "embeddings word_embeddings position_embeddings token_type_embeddings LayerNorm dropout".split()
LAYER = (
    "attention attention.self attention.self.query attention.self.value attention.output attention.output.dense "
    "attention.output.dropout attention.output.LayerNorm intermediate intermediate.dense "
    "intermediate.intermediate_act_fn output output.dense output.LayerNorm"
).split()
HEAD = (
    "cls cls.predictions cls.predictions.transform cls.predictions.transform.transform_act_fn cls.predictions.decoder"
)
PLACES = [
    "embeddings",
    *(f"embeddings.{name}" for name in TRUNK[1:]),
    "encoder",
    "encoder.layer.0",
    "encoder.layer.0.attention.self",
    "encoder.layer.1",
    *(f"encoder.layer.1.{name}" for name in LAYER),
    "pooler",
    "pooler.dense",
    "pooler.activation",
    *HEAD.split(),
    "classifier",
    "qa_outputs",
    "dropout",
]

OF_BERT = ("embeddings", "encoder", "layer.1", "attention", "self", "intermediate", "layer.1.output", "pooler")


def mixed(states: torch.Tensor) -> torch.Tensor:
    """What depends on the other tokens of a row, or on the other rows if each has one state."""
    if not states.is_floating_point():
        return states.roll(1, -1)
    return states + states.roll(1, min(1, states.dim() - 2)) / 4


def with_mixed(output: Any) -> Any:
    """A module's output with its hidden states mixed."""
    if isinstance(output, torch.Tensor):
        return mixed(output)
    if isinstance(output, tuple):
        return mixed(output[0]), *output[1:]
    output.last_hidden_state = mixed(output.last_hidden_state)
    if "pooler_output" in output:
        output.pooler_output = output.last_hidden_state.mean(1)
    return output


class Mixing(nn.Module):
    """A user's module around one of the network."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The inner module's output, mixed."""
        return with_mixed(self.inner(*inputs, **kwargs))


def own_forward(forward: Any) -> Any:
    """A forward of a user's, in place of one of a class."""
    return lambda module, *inputs, **kwargs: with_mixed(forward(module, *inputs, **kwargs))


def replace(parent: nn.Module, name: str, module: nn.Module, monkeypatch: Any) -> None:
    setattr(parent, name, Mixing(module))


def subclass(parent: nn.Module, name: str, module: nn.Module, monkeypatch: Any) -> None:
    module.__class__ = type("Own", (type(module),), {"forward": own_forward(type(module).forward)})


def patch(parent: nn.Module, name: str, module: nn.Module, monkeypatch: Any) -> None:
    module.forward = MethodType(own_forward(type(module).forward), module)


def patch_class(parent: nn.Module, name: str, module: nn.Module, monkeypatch: Any) -> None:
    forward = type(module).forward
    if forward.__code__ is not own_forward(forward).__code__:  # PyTorch's classes are in both networks
        monkeypatch.setattr(type(module), "forward", own_forward(forward))


def hook(parent: nn.Module, name: str, module: nn.Module, monkeypatch: Any) -> None:
    module.register_forward_hook(lambda module, inputs, output: with_mixed(output))


def hook_before(parent: nn.Module, name: str, module: nn.Module, monkeypatch: Any) -> None:
    module.register_forward_pre_hook(lambda module, inputs: (mixed(inputs[0]), *inputs[1:]) if inputs else None)


WAYS = (replace, subclass, patch, patch_class, hook, hook_before)


def parent_of(model: Any, place: str) -> tuple[nn.Module, str, nn.Module] | None:
    """The module at a place, below its parent and the name there; None if the model has no such module."""
    root = model if place.startswith(("bert", "cls", "classifier", "qa_outputs", "dropout")) else model.base_model
    try:
        module = root.get_submodule(place)
    except AttributeError:
        return None
    path, _, name = place.rpartition(".")
    return None if module is None else (root.get_submodule(path), name, module)


@cache
def unchanged(name: str, heads: Any) -> Any:
    """A model that nothing changes."""
    return heads(name).model()


@cache
def heads_with(place: str, heads: Any) -> list[str]:
    """The heads that have a module at a place."""
    return [name for name in heads.names if parent_of(unchanged(name, heads), place)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_a_changed_module_does_what_it_does_in_bert(heads, agree, monkeypatch, place, way):
    """In both modes, with and without padding; each way meets a place in another head."""
    if way is patch_class and place.endswith("output"):
        pytest.skip("transformers has two classes where MyBERT has one")
    names = heads_with(place, heads)
    head = heads(names[(PLACES.index(place) + WAYS.index(way)) % len(names)])
    my_bert, bert = head.matched_models(dropout=0.0)
    for model in (my_bert, bert):
        way(*parent_of(model, place), monkeypatch)
    for padding, training in (("right", True), ("right", False), (None, False)):
        batch = head.batch(padding, labels=training)
        agree(my_bert.train(training), bert.train(training), batch, tolerance=3e-5, unpads=(True,))


@pytest.mark.parametrize("way", WAYS[:-1])
def test_a_changed_encoder_computes_all_tokens(head_with_loss, agree, monkeypatch, way):
    """Without padding, whose hidden states are zeros if a `MyBertModel` is called."""
    my_bert, bert = head_with_loss.matched_models(dropout=0.0)
    for model in (my_bert, bert):
        way(*parent_of(model, "bert"), monkeypatch)
    for training in (False, True):
        agree(my_bert.train(training), bert.train(training), head_with_loss.batch(None, labels=True))


@pytest.mark.parametrize("place", PLACES)
def test_a_replaced_module_in_every_head(heads, agree, place):
    names = heads_with(place, heads)
    assert names
    for head in map(heads, names):
        my_bert, bert = head.matched_models(dropout=0.0, attn_implementation="eager")
        for model in (my_bert, bert):
            replace(*parent_of(model, place), None)
        agree(my_bert, bert, head.batch("left", labels=True), tolerance=3e-5, unpads=(True,))


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.endswith(OF_BERT) and not place.startswith("embeddings.")]
)
@pytest.mark.parametrize("name", ["ForPreTraining", "ForSequenceClassification"])
def test_modules_of_transformers_keep_sequences_apart(heads, agree, name, place):
    my_bert, bert = heads(name).matched_models(dropout=0.0)
    parent, child, _ = parent_of(my_bert, place)
    setattr(parent, child, copy.deepcopy(bert.base_model.get_submodule(place)))
    my_bert.tie_weights()
    for training in (False, True):
        agree(my_bert.train(training), bert.train(training), heads(name).batch("right", labels=training))


class Wrapper(nn.Module):
    """A user's module around an encoder, with the arguments of transformers' BERT."""

    def __init__(self, inner: nn.Module, hide: Any) -> None:
        super().__init__()
        self.inner = hide(inner)

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        position_ids: Any = None,
        inputs_embeds: Any = None,
        encoder_hidden_states: Any = None,
        encoder_attention_mask: Any = None,
        return_dict: Any = None,
    ) -> Any:
        """The encoder's output, mixed."""
        inner = self.inner
        while not isinstance(inner, nn.Module):
            (inner,) = inner.values() if isinstance(inner, dict) else inner
        output = inner(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=return_dict)
        output.last_hidden_state = mixed(output.last_hidden_state)
        return output


# Ways of keeping a module, all but the first without PyTorch's knowledge.
HIDDEN = {"module": lambda one: one, "list": lambda one: [one], "dictionary": lambda one: {"encoder": (one,)}}


@pytest.mark.parametrize(
    ("hide", "padding"),
    [*(("module", side) for side in ("right", "left", None)), ("list", "right"), ("dictionary", None)],
)
@pytest.mark.parametrize("training", [False, True])
def test_a_wrapped_encoder_gets_berts_arguments(head_with_loss, agree, training, padding, hide):
    my_bert, bert = head_with_loss.matched_models(dropout=0.0)
    batch = head_with_loss.batch(padding, labels=True)
    inner, others = my_bert.bert.train(training), bert.bert.train(training)
    my_bert.bert, bert.bert = Wrapper(inner, HIDDEN[hide]), Wrapper(others, HIDDEN[hide])
    agree(my_bert.train(training), bert.train(training), batch)
    agree(my_bert, bert, head_with_loss.batch(padding))
    my_bert.bert, bert.bert = inner, others
    agree(my_bert, bert, batch)


class Spy(nn.Module):
    """A user's module that calls the encoder within it by a function."""

    def __init__(self, inner: nn.Module, call: Any) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, *args: Any, **arguments: Any) -> Any:
        """What the function returns for the encoder's call."""
        return self.call(lambda: self.inner(*args, **arguments))


@pytest.fixture
def wrapped(heads):
    """A head whose encoder is in a user's module, and the states at padding of a direct call of that encoder."""
    model, batch = heads("ForTokenClassification").model(), heads("ForTokenClassification").batch()
    inner = model.bert
    is_padding = batch["attention_mask"] == 0

    def padding_of_direct_call():
        return inner(**batch).last_hidden_state[is_padding]

    def call(function):
        model.bert = Spy(inner, function)
        return model(**batch)

    return call, padding_of_direct_call


def state_of(model):
    return [(name, key, id(value)) for name, part in model.named_modules() for key, value in vars(part).items()]


def test_forward_changes_no_module(head_with_loss):
    model, batch = head_with_loss.model(), head_with_loss.batch(labels=True)
    model.config.problem_type = "single_label_classification"
    model(**batch)  # transformers prepares what it captures at the first call
    for hide in (None, *HIDDEN.values()):
        if hide is not None:
            model.bert = Wrapper(model.bert, hide)
        before = state_of(model)
        model(**batch)
        assert state_of(model) == before


def test_encoder_after_a_call_within_a_users_module_returns_the_same_states(wrapped):
    call, padding_of_direct_call = wrapped
    assert not padding_of_direct_call().any()
    seen = []
    call(lambda encode: seen.append(encode()) or seen[0])
    assert seen[0].last_hidden_state.abs().sum(-1).all()  # at padding, too
    assert not padding_of_direct_call().any()


def test_encoder_after_an_error_in_a_users_module_returns_the_same_states(wrapped):
    call, padding_of_direct_call = wrapped
    with pytest.raises(ZeroDivisionError):
        call(lambda encode: encode() and 1 / 0)
    assert not padding_of_direct_call().any()


def test_encoder_in_another_thread_returns_the_same_states_during_a_call_within_a_users_module(wrapped):
    (call, padding_of_direct_call), seen = wrapped, []
    with ThreadPoolExecutor(1) as pool:
        call(lambda encode: seen.append(pool.submit(padding_of_direct_call).result()) or encode())
    assert len(seen) == 1 and not seen[0].any()


def test_an_encoder_of_transformers(head_with_loss, agree):
    my_bert, bert = head_with_loss.matched_models(dropout=0.0)
    my_bert.bert = copy.deepcopy(bert.bert)
    my_bert.tie_weights()
    agree(my_bert, bert, head_with_loss.batch("right", labels=True))


@pytest.mark.parametrize(
    "pooler", [nn.Identity(), nn.Flatten(), nn.AdaptiveAvgPool1d(5)], ids=lambda pooler: str(pooler)
)
def test_a_pooler_of_pytorch_gets_all_tokens(heads, agree, pooler):
    my_bert, bert = heads("Model").matched_models()
    my_bert.pooler = bert.pooler = pooler
    for padding in ("right", None):
        agree(my_bert, bert, heads("Model").batch(padding), gradients=False)


class SumPooler(nn.Module):
    """A user's pooler, which reads all tokens."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The sum of the hidden states of each row."""
        return hidden_states.sum(1)


def test_a_users_pooler_gets_all_tokens_of_a_decoder(heads, agree):
    my_bert, bert = heads("Model").matched_models(is_decoder=True)
    my_bert.pooler = bert.pooler = SumPooler()
    for padding in ("right", "left", None):
        agree(my_bert, bert, {**heads("Model").batch(padding), "use_cache": False, "return_dict": False})


SEVERAL = {"cu_seq_lens_q": torch.tensor([0, 4, 11, 22])}  # in two rows of 11 tokens


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("more", [{}, {"max_length_q": 11, "max_length_k": 11}])
def test_a_users_pooler_gets_all_tokens_of_each_sequence_in_a_row(heads, is_decoder, more):
    """With zeros behind them; PyTorch's too."""
    model = heads("Model").model(is_decoder=is_decoder)
    ids = torch.randint(1, 61, (2, 11), generator=torch.Generator().manual_seed(1))
    alone = [model(part).last_hidden_state for part in ids.view(1, -1).split((4, 7, 11), 1)]
    for pooler in (SumPooler(), nn.Identity()):
        model.pooler = pooler
        pooled = model(ids, **SEVERAL, **more).pooler_output
        expected = nn.utils.rnn.pad_sequence([one[0] for one in alone], batch_first=True)
        torch.testing.assert_close(pooled, pooler(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("around", [nn.Sequential, lambda pooler: Wrapped(pooler)], ids=["sequential", "wrapped"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_wrapped_pooler_still_reads_the_pooled_token(heads, is_decoder, around):
    model = heads("Model").model(is_decoder=is_decoder)
    ids = torch.randint(1, 61, (2, 11), generator=torch.Generator().manual_seed(1))
    expected = model(ids, **SEVERAL).pooler_output
    model.pooler = around(model.pooler)
    torch.testing.assert_close(model(ids, **SEVERAL).pooler_output, expected, rtol=0, atol=1e-5)


class Wrapped(nn.Module):
    """A user's module that adds nothing."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The inner module's output."""
        return self.inner(hidden_states)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.Linear, nn.Dropout, nn.Embedding])
def test_hooks_on_all_modules(head, agree, kind, before):
    """As debuggers and tools for profiling and interpretation register them."""
    my_bert, bert = head.matched_models(dropout=0.0)

    def change(module: nn.Module, inputs: Any, output: Any = None) -> Any:
        if type(module) is kind:
            return mixed(inputs[0] if before else output)
        return None

    register = "register_module_forward_pre_hook" if before else "register_module_forward_hook"
    handle = getattr(nn.modules.module, register)(change)
    try:
        agree(my_bert, bert, head.batch("right", labels=True), tolerance=3e-5)
    finally:
        handle.remove()


@pytest.mark.parametrize(
    ("configured", "chosen", "padding"), [(0.5, 0.0, "right"), (0.5, 0.0, None), (0.0, 0.3, None)]
)
def test_the_probability_of_dropout_modules_counts(head, agree, configured, chosen, padding):
    my_bert, bert = head.matched_models(hidden_dropout_prob=configured, attention_probs_dropout_prob=configured)
    for model in (my_bert, bert):
        model.config.hidden_dropout_prob = 0.0  # for `agree`
        for module in model.train().modules():
            if isinstance(module, nn.Dropout):
                module.p = chosen
    agree(my_bert, bert, head.batch(padding, labels=True))


def test_a_change_counts_from_the_next_call_on_and_until_it_is_undone(heads, watch):
    my_bert, bert = heads("ForSequenceClassification").matched_models()
    batch = heads("ForSequenceClassification").batch("right")
    seen, tokens = watch(my_bert.bert.encoder.layer[0]), int(batch["attention_mask"].sum())
    my_bert(**batch)
    poolers = [model.bert.pooler for model in (my_bert, bert)]
    for model, pooler in zip((my_bert, bert), poolers, strict=True):
        model.bert.pooler = Mixing(pooler)
    torch.testing.assert_close(my_bert(**batch).logits, bert(**batch).logits, rtol=0, atol=1e-5)
    my_bert.bert.pooler = poolers[0]
    my_bert(**batch)
    assert seen == [(1, tokens, 32), (*batch["input_ids"].shape, 32), (1, tokens, 32)]


def test_a_changed_encoder_is_compiled_without_graph_break(heads):
    model, batch = heads("ForSequenceClassification").model(), heads("ForSequenceClassification").batch("right")
    model.bert = Mixing(model.bert)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, fullgraph=True, backend="eager")(**batch)
        torch.testing.assert_close(found.logits, model(**batch).logits, rtol=0, atol=1e-5)


def quantize(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})


def compile_in_place(model: Any) -> Any:
    model.encoder.layer[0].compile(backend="eager")
    return model


def compile_around(model: Any) -> Any:
    model.encoder.layer[0] = torch.compile(model.encoder.layer[0], backend="eager")
    return model


def convolve(model: Any) -> Any:
    model.encoder.layer[0].output.dropout = nn.Conv1d(1, 1, 1)
    return model


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization is deprecated", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    ("change", "packs"), [(quantize, True), (compile_in_place, True), (compile_around, False), (convolve, False)]
)
def test_modules_of_pytorch(heads, change, packs):
    """Those that treat all tokens alike leave the batch packed; a compiled module has a `forward` of its own."""
    assert change(heads("Model").model())._scan().is_changed is not packs


# Hooks--------


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "place", ["embeddings", "encoder.layer.1", "encoder.layer.0.attention.self.key", "encoder.layer.1.output.dense"]
)
def test_a_backward_hook_sees_the_rows_of_the_batch(heads, agree, place):
    my_bert, bert = heads("Model").matched_models(dropout=0.0)
    batch, seen = heads("Model").batch("right"), []
    my_bert.get_submodule(place).register_full_backward_hook(lambda module, before, after: seen.append(after[0].shape))
    agree(my_bert, bert, batch)
    assert seen and {tuple(shape[:2]) for shape in seen} == {tuple(batch["input_ids"].shape)}


def test_a_hook_sees_the_sequences_of_a_flattened_row_in_their_order(heads):
    model, seen = heads("Model").model(), []
    ids = torch.randint(1, 61, (1, 12), generator=torch.Generator().manual_seed(1))
    lengths = (3, 7, 2)
    row = {"input_ids": ids, "cu_seq_lens_q": torch.tensor([0, 3, 10, 12])}
    expected = model(**row).last_hidden_state
    model.encoder.layer[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(model(**row).last_hidden_state, expected, rtol=0, atol=1e-5)
    alone = torch.cat([model(part).last_hidden_state for part in ids.split(lengths, 1)], 1)
    torch.testing.assert_close(seen[0], alone, rtol=0, atol=1e-5)


def test_hooks_that_need_no_rows_leave_the_batch_packed(heads, watch):
    model, batch = heads("Model").model(), heads("Model").batch()
    model(**batch, output_hidden_states=True)  # transformers installs its own
    layer = model.encoder.layer[1]
    prune.l1_unstructured(layer.intermediate.dense, "weight", amount=0.5)
    parametrizations.weight_norm(layer.output.dense)
    model.register_forward_hook(lambda module, inputs, output: None)  # the encoder itself has the batch's shape
    seen = watch(model.encoder.layer[0])
    model(**batch)
    assert seen == [(1, int(batch["attention_mask"].sum()), 32)]
    assert not is_changed(model.encoder)


@pytest.mark.parametrize("padding", ["right", "left", None])
def test_noise_on_the_embeddings_is_that_of_bert(heads, watch, padding):
    """NEFTune's noise depends on the batch's shape; for equal shapes it is bitwise equal."""
    head = heads("Model")
    my_bert, bert = head.matched_models(dropout=0.0)
    batch, noise = head.batch(padding), []
    outputs = []
    for model in (my_bert, bert):
        words = model.train().get_input_embeddings()
        words.neftune_noise_alpha = 5.0
        words.register_forward_hook(neftune_post_forward_hook)
        words.register_forward_hook(lambda module, inputs, output: noise.append(output - module.weight[inputs[0]]))
        torch.manual_seed(3)
        outputs.append(head.at_tokens(model(**batch).last_hidden_state, batch))
    assert torch.equal(noise[0], noise[1]) and noise[0].abs().max() > 0.1
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)
    gradients = []
    for model, output in zip((my_bert, bert), outputs, strict=True):
        output.square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    if padding == "right":
        seen = watch(my_bert.encoder.layer[0])
        my_bert(**batch)
        assert seen == [(1, int(batch["attention_mask"].sum()), 32)]  # the layers run packed all the same
