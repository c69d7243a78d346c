"""The packed encoder: its layers run on tokens only, and results equal those of the padded computation."""

import importlib.util
import sys
import types

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DataCollatorWithFlattening, masking_utils, modeling_flash_attention_utils
from transformers.integrations import hub_kernels
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import mybert
from mybert.modeling_mybert import attention_mybert, batch_mybert
from mybert.modeling_mybert.attention_mybert import packed_attention
from mybert.modeling_mybert.batch_mybert import (
    flat_indices,
    pack_batch,
    pack_sequences,
)
from mybert.modeling_mybert.inputs_mybert import unmask_empty_rows

LENGTHS = (11, 1, 4, 4, 7)


def num_tokens(shape: torch.Size) -> int:
    """How many tokens hidden states of this shape hold."""
    return shape[:2].numel()


@pytest.fixture
def sequences() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(1, 61, (length,), generator=generator) for length in LENGTHS]


@pytest.mark.parametrize("padding", ["right", "left", "holes"])
@pytest.mark.parametrize("name", ["ForPreTraining", "ForTokenClassification", "ForSequenceClassification"])
def test_tokens_that_fill_up_change_nothing(heads, watch, agree, monkeypatch, name, padding):
    my_bert, bert = heads(name).matched_models(dropout=0.0)
    batch = heads(name).batch(padding, labels=True)
    mask, seen = batch["attention_mask"], watch(my_bert.base_model.encoder.layer[0], num_tokens)
    monkeypatch.setattr(batch_mybert, "rounded_rows", lambda count: count + 3)
    for is_training in (False, True):
        agree(my_bert.train(is_training), bert.train(is_training), batch)
    tokens = int(mask.sum() + (mask[:, 0] == 0).sum())
    assert seen == [mask.numel(), tokens + 3] * 2


@pytest.mark.parametrize("padding", [None, "full"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_batch_without_padding_is_filled_up_in_inference(heads, watch, monkeypatch, is_decoder, padding):
    my_bert, bert = heads("Model").matched_models(is_decoder=is_decoder, use_cache=False)
    batch, seen = heads("Model").batch(None), watch(my_bert.base_model.encoder.layer[0], num_tokens)
    if padding == "full":
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    monkeypatch.setattr(batch_mybert, "rounded_rows", lambda count: count + 3)
    outputs, expected = (model(**batch, output_hidden_states=True) for model in (my_bert, bert))
    torch.testing.assert_close(outputs.hidden_states, expected.hidden_states, rtol=0, atol=1e-5)
    torch.testing.assert_close(outputs.last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-5)
    if not is_decoder:  # MyBERT pools the last token there
        torch.testing.assert_close(outputs.pooler_output, expected.pooler_output, rtol=0, atol=1e-5)
    tokens = batch["input_ids"].numel()
    assert seen == [tokens + 3]
    my_bert.train()(**batch)
    assert seen == [tokens + 3, tokens]


@pytest.mark.parametrize("padding", ["right", "left", "holes"])
def test_layers_see_no_padding(head, watch, padding):
    model, batch = head.model(), head.batch(padding)
    mask = batch["attention_mask"].flatten(0, -2)
    seen = watch(model.base_model.encoder.layer[0], num_tokens)
    model(**batch)
    first_is_padding = mask[:, 0] == 0  # the pooler reads the first position's state, as in transformers
    assert seen == [int(mask.sum() + first_is_padding.sum())]
    assert seen[0] < mask.numel()


def test_padding_has_zeros(heads):
    model, batch = heads("Model").model(), heads("Model").batch("left")
    outputs = model(**batch, output_hidden_states=True)
    is_padding = batch["attention_mask"] == 0
    assert len(outputs.hidden_states) == 3
    for states in (outputs.last_hidden_state, *outputs.hidden_states):
        assert not states[is_padding].any()
        assert states[~is_padding].any(1).all()


@pytest.mark.parametrize(
    ("asked", "given"), [([-1], {2}), (1, {1}), ([0, -2], {0, 1}), ([5, -9], set()), (True, {0, 1, 2})]
)
def test_selected_hidden_states(heads, asked, given):
    """By their indices, as in transformers' BERT."""
    model, batch = heads("Model").model(), heads("Model").batch()
    expected = model(**batch, output_hidden_states=True).hidden_states
    chosen = model(**batch, output_hidden_states=asked).hidden_states
    assert [states is not None for states in chosen] == [number in given for number in range(3)]
    assert all(states is None or torch.equal(states, expected[number]) for number, states in enumerate(chosen))


@pytest.mark.parametrize("settings", [{"unpad_inputs": False}, {"attn_implementation": "eager"}, {}], ids=str)
def test_stays_padded(heads, watch, settings):
    """If it is switched off, or with eager attention, or under a prepared mask."""
    (my_bert, bert), batch = heads("Model").matched_models(**settings), heads("Model").batch()
    if not settings:
        batch["attention_mask"] = batch["attention_mask"].bool()[:, None, None].expand(-1, 1, 11, -1)
    seen = watch(my_bert.base_model.encoder.layer[0], num_tokens)
    torch.testing.assert_close(my_bert(**batch)[0], bert(**batch)[0], rtol=0, atol=1e-5)
    assert seen == [batch["input_ids"].numel()]


@pytest.mark.parametrize("name", ["ForMaskedLM", "ForPreTraining", "ForTokenClassification", "ForQuestionAnswering"])
def test_padding_that_is_needed_is_computed(heads, name):
    """If the caller says so, or a label is there: it has a loss in transformers' BERT, too."""
    head = heads(name)
    my_bert, bert = head.matched_models(dropout=0.0)
    batch = head.batch()
    torch.testing.assert_close(my_bert(**batch, unpad_inputs=False)[0], bert(**batch)[0], rtol=0, atol=1e-5)
    if name != "ForQuestionAnswering":
        batch = {**head.batch(labels=True), "labels": batch["input_ids"] % 3}
        torch.testing.assert_close(my_bert.train()(**batch).loss, bert.train()(**batch).loss, rtol=0, atol=1e-5)


def losses_of_answers(outputs, possible, places) -> torch.Tensor:
    """The mean loss of each row's start and end, among the possible positions only."""
    pairs = zip((outputs.start_logits, outputs.end_logits), places.values(), strict=True)
    return torch.stack(
        [
            -scores[row].masked_fill(~possible[row], -torch.inf).log_softmax(-1)[positions[row]]
            for scores, positions in pairs
            for row in range(len(possible))
        ]
    ).mean()


@pytest.mark.parametrize("padding", ["right", "left"])
def test_answers_are_learned_without_the_padding(heads, watch, padding):
    head = heads("ForQuestionAnswering")
    my_bert, bert = head.matched_models(dropout=0.0)
    batch = head.batch(padding)
    tokens = batch["attention_mask"].bool()
    first = tokens.int().argmax(1)
    places = {"start_positions": first, "end_positions": first + 1}
    expected = losses_of_answers(bert.train()(**batch), tokens, places)
    expected.backward()
    seen = watch(my_bert.base_model.encoder.layer[0], num_tokens)
    assert my_bert.train()(**batch, **places).loss != expected  # as in transformers: padding may be an answer
    loss = my_bert(**batch, **places, unpad_inputs=True).loss
    loss.backward()
    assert tokens.sum() <= seen[1] < seen[0] == tokens.numel()
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-5)
    for (name, one), other in zip(my_bert.named_parameters(), bert.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-5, msg=name)


def test_answers_outside_of_their_sequence_are_left_out(heads):
    """At padding where no answer can be, and past the end of one of several sequences in a row."""
    model = heads("ForQuestionAnswering").model()
    ids = torch.randint(1, 61, (2, 6), generator=torch.Generator().manual_seed(6))
    lengths = (6, 4)
    alone = [model(ids[row : row + 1, :length]) for row, length in enumerate(lengths)]
    starts, ends = ([one[name][0].log_softmax(-1) for one in alone] for name in ("start_logits", "end_logits"))
    answers = {"start_positions": torch.tensor([2, 5]), "end_positions": torch.tensor([7, 3])}
    expected = -(starts[0][2] + ends[1][3]) / 2  # the other two are outside

    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    padded = model(ids, attention_mask=mask, unpad_inputs=True, **answers).loss
    torch.testing.assert_close(padded, expected, rtol=0, atol=1e-5)
    row = torch.cat([ids[0], ids[1, :4]])[None]
    packed = model(row, cu_seq_lens_q=torch.tensor([0, 6, 10]), **answers).loss
    torch.testing.assert_close(packed, expected, rtol=0, atol=1e-5)
    answers = {name: positions + 10 for name, positions in answers.items()}
    assert model(row, cu_seq_lens_q=torch.tensor([0, 6, 10]), **answers).loss == 0


def test_a_prepared_mask_tells_nothing_of_padding(heads):
    head = heads("ForQuestionAnswering")
    model, batch = head.model(), head.batch(padding=None, labels=True)
    batch["attention_mask"] = torch.ones(4, 1, 11, 11).tril().log()
    torch.testing.assert_close(model(**batch, unpad_inputs=True).loss, model(**batch).loss, rtol=0, atol=0)


@pytest.mark.parametrize("unpad_inputs", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_sequence_of_padding_only_is_what_googles_graph_makes_of_it(heads, attention, unpad_inputs):
    """Google's graph adds -10,000 to scores of padding, which does not change the softmax of a row of padding."""
    my_bert, bert = heads("Model").matched_models(attn_implementation=attention, unpad_inputs=unpad_inputs)
    batch = heads("Model").batch()
    batch["attention_mask"][1] = 0
    mask = batch["attention_mask"].double()[:, None, None].expand(-1, -1, 11, -1)
    # In float64, so that adding -10,000 loses no digits.
    expected = bert.double()(batch["input_ids"], attention_mask=(1.0 - mask) * -10000.0)
    outputs = my_bert(**batch)
    torch.testing.assert_close(outputs.pooler_output.double(), expected.pooler_output, rtol=0, atol=1e-5)
    # Nothing was removed from that row.
    torch.testing.assert_close(outputs.last_hidden_state[1].double(), expected.last_hidden_state[1], rtol=0, atol=1e-5)
    outputs.last_hidden_state.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in my_bert.parameters() if parameter.grad is not None)


def test_an_answer_in_a_sequence_of_padding_only(heads):
    """All its positions are possible answers, as they are in Google's loss."""
    head = heads("ForQuestionAnswering")
    model, batch = head.model(), head.batch()
    batch["attention_mask"][1] = 0
    possible = batch["attention_mask"].bool()
    possible[1] = True
    places = {"start_positions": torch.zeros(4).long(), "end_positions": torch.ones(4).long()}
    expected = losses_of_answers(model(**batch), possible, places)
    loss = model(**batch, **places, unpad_inputs=True).loss
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-5)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("chunk", [1, 4, 5, 11, 100])
def test_feed_forward_in_chunks_that_do_not_divide_the_tokens(heads, watch, agree, chunk):
    """transformers' BERT needs a chunk size that divides the row length; MyBERT chunks packed tokens."""
    head = heads("Model")
    my_bert, bert = head.matched_models(dropout=0.0)
    for layer in my_bert.encoder.layer:
        layer.chunk_size_feed_forward = chunk
    agree(my_bert, bert, head.batch())
    agree(my_bert.train(), bert.train(), head.batch())
    seen, tokens = watch(my_bert.encoder.layer[0].output), int(head.batch()["attention_mask"].sum())
    my_bert(**head.batch())
    assert [shape[1] for shape in seen] == [chunk] * (tokens // chunk) + [tokens % chunk] * (tokens % chunk > 0)


def test_dropout_is_applied_to_packed_tokens(heads):
    """The same seed gives the same states; the mean over many draws is close to the states without dropout."""
    head = heads("Model")
    model = head.model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5, num_hidden_layers=1)
    batch = head.batch()
    expected = model(**batch).last_hidden_state
    model.train()
    with torch.no_grad():
        torch.manual_seed(1)
        one = model(**batch).last_hidden_state
        torch.manual_seed(1)
        assert torch.equal(model(**batch).last_hidden_state, one)
        assert (one - expected).abs().max() > 0.1
        context = torch.stack([attention_context(model, batch) for _ in range(2000)]).mean(0)
        torch.testing.assert_close(context, attention_context(model.eval(), batch), rtol=0, atol=0.1)


def attention_context(model, batch) -> torch.Tensor:
    """The context of the first layer's attention, which is linear in the attention weights."""
    module = model.encoder.layer[0].attention.self
    kept = []

    def keep(module, inputs, output):
        kept.append(output[0])

    keep.__module__ = "torch.utils.flop_counter"  # other hooks prevent packing
    handle = module.register_forward_hook(keep)
    model(**batch)
    handle.remove()
    return kept[0]


# Several sequences in a row


def flattened(sequences, **options) -> dict:
    features = [{"input_ids": sequence.tolist()} for sequence in sequences]
    batch = dict(DataCollatorWithFlattening(**options)(features))
    batch.pop("labels")
    return batch


ALONE, BORDERS, BOTH = (
    {},
    {"return_position_ids": False, "return_flash_attn_kwargs": True},
    {"return_flash_attn_kwargs": True},
)


@pytest.mark.parametrize("options", [ALONE, BORDERS, BOTH], ids=["positions", "borders", "both"])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("unpad_inputs", [True, False])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_sequences_of_a_row_do_not_see_each_other(
    heads, sequences, options, attn_implementation, unpad_inputs, is_decoder
):
    model = heads("Model").model(unpad_inputs=unpad_inputs, is_decoder=is_decoder)
    model.set_attn_implementation(attn_implementation)
    outputs = model(**flattened(sequences, **options))
    alone = [model(sequence[None]) for sequence in sequences]
    states = torch.cat([one.last_hidden_state[0] for one in alone])[None]
    torch.testing.assert_close(outputs.last_hidden_state, states, rtol=0, atol=1e-5)
    pooled = torch.cat([one.pooler_output for one in alone])
    torch.testing.assert_close(outputs.pooler_output, pooled, rtol=0, atol=1e-5)


class HubKernel:
    """A stand-in for a Hub kernel, with the functions and arguments of flash attention 2; or 3, without dropout."""

    def __init__(self) -> None:
        self.calls: list = []

    def flash_attn_varlen_func(
        self, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False
    ):
        assert torch.equal(cu_seqlens_q, cu_seqlens_k) and cu_seqlens_q.dtype == torch.int32
        assert int(max_seqlen_q) == int(max_seqlen_k)
        self.calls.append((cu_seqlens_q.tolist(), int(max_seqlen_q)))
        sizes = cu_seqlens_q.diff().tolist()
        parts = zip(*(tensor.split(sizes) for tensor in (q, k, v)), strict=True)
        return torch.cat([self.flash_attn_func(*(t[None] for t in part), softmax_scale, causal)[0] for part in parts])

    def flash_attn_func(self, q, k, v, softmax_scale=None, causal=False):
        states = (tensor.transpose(1, 2) for tensor in (q, k, v))
        context = torch.nn.functional.scaled_dot_product_attention(*states, scale=softmax_scale, is_causal=causal)
        return context.transpose(1, 2)


FLASH = "kernels-community/flash-attn2"


@pytest.fixture
def hub_kernel(monkeypatch) -> HubKernel:
    """The kernel that transformers loads by any name, also for attention packages that are not installed."""
    kernel = HubKernel()
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(transformers.modeling_utils, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *args, **kwargs: kernel)
    monkeypatch.setattr(modeling_flash_attention_utils, "_loaded_implementation", None)
    for registry in (ALL_ATTENTION_FUNCTIONS, masking_utils.ALL_MASK_ATTENTION_FUNCTIONS):
        monkeypatch.setattr(type(registry), "_global_mapping", dict(registry._global_mapping))
    return kernel


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("has_flash", [False, True])
@pytest.mark.parametrize("given", ["position_ids", "cu_seq_lens_q", "all"])
def test_several_rows_of_several_sequences(heads, sequences, given, has_flash, is_decoder, hub_kernel):
    model = heads("Model").model(is_decoder=is_decoder)
    alone = [model(sequence[None]) for sequence in (sequences[0], sequences[2], sequences[4])]
    rows = torch.stack([sequences[0], torch.cat([sequences[2], sequences[4]])])
    positions = torch.stack([torch.arange(11), torch.cat([torch.arange(4), torch.arange(7)])])
    borders = torch.tensor([0, 11, 15, 22], dtype=torch.int32)
    arguments = {
        "position_ids": {"position_ids": positions},
        "cu_seq_lens_q": {"cu_seq_lens_q": borders},
        "all": {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders, "max_length_q": 12, "max_length_k": 12},
    }[given]
    if has_flash:
        model.set_attn_implementation(FLASH, allow_all_kernels=True)
    outputs = model(rows, **arguments)
    assert hub_kernel.calls == [([0, 11, 15, 22], 12 if given == "all" else 11)] * 2 * has_flash
    torch.testing.assert_close(
        outputs.last_hidden_state.flatten(0, 1), torch.cat([one.last_hidden_state[0] for one in alone])
    )
    torch.testing.assert_close(outputs.pooler_output, torch.cat([one.pooler_output for one in alone]))


def test_positions_alone_do_not_tell_compiled_flash_attention_what_to_keep_apart(heads, sequences, monkeypatch):
    """A compiled graph cannot branch on positions that start again, so it raises an error when it runs."""
    model = heads("Model").model(num_hidden_layers=1)
    row = torch.cat([sequences[2], sequences[4]])[None]
    expected = model(row).last_hidden_state
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "flash_attention_2", ALL_ATTENTION_FUNCTIONS["sdpa"])
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    for fullgraph in (True, False):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="eager", fullgraph=fullgraph)
        with torch.no_grad():
            found = compiled(row, position_ids=torch.arange(11)[None]).last_hidden_state
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
            with pytest.raises(RuntimeError, match="pass cu_seq_lens_q and max_length_q"):
                compiled(row, position_ids=torch.cat([torch.arange(4), torch.arange(7)])[None])


@pytest.mark.parametrize("padding", ["right", "holes"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_flash_attention_sees_no_padding(head, watch, padding, is_decoder, hub_kernel, step):
    """It gets the tokens of a padded batch as one row, with their boundaries; so do all other parts of the layers."""
    model, batch = head.model(is_decoder=is_decoder), head.batch(padding, labels=True)
    mask = batch["attention_mask"].flatten(0, -2)
    if head.name == "ForQuestionAnswering":
        batch["unpad_inputs"] = True
    _, expected = step(model, batch)
    model.set_attn_implementation(FLASH, allow_all_kernels=True)
    seen = watch(model.base_model.encoder.layer[0], num_tokens)
    _, found = step(model, {**batch, "token_indices": flat_indices(mask)} if padding == "right" else batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert seen == [int(mask.sum())]
    assert hub_kernel.calls == [([0, *mask.sum(1).cumsum(0).tolist()], mask.shape[1])] * 2


@pytest.mark.parametrize("name", [FLASH, "someone/attention@main", "flash_attention_3"])
@pytest.mark.parametrize("form", ["right", "left", "holes", None, "rows"])
@pytest.mark.parametrize("unpad_inputs", [True, False])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_attention_kernels_of_the_hub(heads, sequences, name, form, unpad_inputs, is_decoder, hub_kernel):
    model = heads("Model").model(is_decoder=is_decoder, unpad_inputs=unpad_inputs)
    batch = flattened(sequences) if form == "rows" else heads("Model").batch(form)
    expected = model(**batch)
    model.set_attn_implementation(name, allow_all_kernels=True)
    found = model(**batch)
    real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    torch.testing.assert_close(found.last_hidden_state[real], expected.last_hidden_state[real], rtol=0, atol=1e-5)
    # Padding at the start of a row is pooled, and its state depends on what padding attends to.
    if form != "left" or is_decoder:
        torch.testing.assert_close(found.pooler_output, expected.pooler_output, rtol=0, atol=1e-5)
    assert bool(hub_kernel.calls) == (form is not None)


@pytest.mark.parametrize("given", ["position_ids", "cu_seq_lens_q", "all"])
def test_every_head_on_flattened_input(head_with_loss, given, step):
    """Losses and gradients of a flattened batch equal those of the same sequences as padded rows."""
    head = head_with_loss
    model = head.model(dropout=0.0).train()
    batch = head.batch("right", labels=True)
    flat = head.flattened(batch)
    if given != "all":
        limits = {"position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"} - {given}
        flat = {name: value for name, value in flat.items() if name not in limits}
    if head.name == "ForQuestionAnswering":
        batch["unpad_inputs"] = True  # otherwise padding is a possible answer, as in transformers
    torch.testing.assert_close(step(model, flat)[1], step(model, batch)[1], rtol=0, atol=1e-5)


def test_flattened_input_under_compilation(heads, sequences):
    head = heads("Model")
    model, batch = head.model(num_hidden_layers=1), flattened(sequences)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        expected = model(**batch)
        torch.testing.assert_close(compiled(**batch).last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-5)
        batch["cu_seq_lens_q"] = torch.tensor([0, *LENGTHS]).cumsum(0).int()  # the pooled output needs the boundaries
        torch.testing.assert_close(compiled(**batch).pooler_output, expected.pooler_output, rtol=0, atol=1e-5)
        found = compiled(**batch, attention_mask=torch.ones_like(batch["input_ids"]))  # which keeps none apart
        torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-5)


def test_positions_with_a_mask_are_positions_only(heads, agree):
    head = heads("Model")
    batch = head.batch("left")
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    agree(*head.matched_models(), batch)


def test_borders_on_an_accelerator(heads):
    """Their values are not read there; the caller gives the longest length. The meta device stands in for any."""
    model = heads("Model").model(unpad_inputs=False).to("meta")
    batch = {
        "input_ids": torch.ones(1, 30, dtype=torch.long, device="meta"),
        "cu_seq_lens_q": torch.tensor([0, 5, 20, 30], device="meta"),
    }
    assert model(**batch).last_hidden_state.shape == (1, 30, 32)
    assert model(**batch, max_length_q=15).last_hidden_state.shape == (1, 30, 32)
    with pytest.raises(ValueError, match=r"The sequence has 25 tokens; this model reads at most 24"):
        model(**batch, max_length_q=25)


# The packing itself


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=7))
def test_packing_and_back(rows):
    mask = unmask_empty_rows(torch.tensor(rows))
    rows = mask.tolist()
    packing = pack_batch(mask.shape, mask.long(), False)
    if mask.all():
        assert packing is None
        return
    batch = torch.arange(1.0, mask.numel() + 1).view(*mask.shape, 1)
    packed = packing.pack(batch)
    assert packed.shape[1] == sum(count * length for count, length, _ in packing.groups)
    assert torch.equal(packing.unpack(packed), batch * mask[..., None])
    assert torch.equal(packed[0, packing.pooled_tokens, 0][~mask[:, 0]], batch[:, 0, 0][~mask[:, 0]])
    first = [row.index(True) for row in rows]
    starts = torch.where(mask[:, 0], torch.tensor(first), 0)
    assert torch.equal(packed[0, packing.pooled_tokens, 0], batch[torch.arange(len(rows)), starts, 0])
    causal = pack_batch(mask.shape, mask.long(), True)
    assert (causal is None) == (not mask[:, 0].all())
    if causal is not None:
        last = [len(row) - 1 - row[::-1].index(True) for row in rows]
        assert torch.equal(causal.pack(batch)[0, causal.pooled_tokens, 0], batch[torch.arange(len(rows)), last, 0])


def attention_of(packing, query, key, value, scaling):
    """The context of states (S, H, d) in the order of the batch, of the same shape."""
    packed = (packing.pack(states[None]).transpose(1, 2) for states in (query, key, value))
    context, _ = packed_attention(None, *packed, None, scaling, batch=packing)
    return packing.unpack(context.flatten(2)).view(query.shape)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.booleans())
def test_attention_of_packed_sequences(lengths, is_causal):
    """Against attention over all tokens under a block-diagonal mask."""
    total = sum(lengths)
    generator = torch.Generator().manual_seed(total)
    query, key, value = torch.randn(3, total, 2, 4, generator=generator)
    packing = pack_sequences((1, total), torch.tensor(lengths), is_causal)
    context = attention_of(packing, query, key, value, 0.5)
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = owner[:, None] == owner
    if is_causal:
        mask &= torch.ones(total, total).tril().bool()
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.transpose(0, 1) for tensor in (query, key, value)), attn_mask=mask, scale=0.5
    )
    torch.testing.assert_close(context, expected.transpose(0, 1), rtol=0, atol=1e-5)


def test_kernel_for_sequences_of_any_length(heads, sequences, monkeypatch):
    """The GPU path, with its kernel replaced by one on the CPU: boundaries and lengths must be right."""
    calls = []

    def varlen_attn(query, key, value, borders, key_borders, longest, longest_key, *, scale, window_size):
        assert borders.dtype == torch.int32
        assert torch.equal(borders, key_borders)
        assert longest == longest_key >= int(borders.diff().max())
        calls.append(window_size)
        lengths = borders.long().diff()
        packing = pack_sequences((1, len(query)), lengths, window_size == (-1, 0))
        return attention_of(packing, query, key, value, scale)

    head = heads("Model")
    batch, model = head.batch(), head.model()
    causal = head.model(is_decoder=True)
    expected = [model(**batch), model(**flattened(sequences)), causal(**batch)]
    monkeypatch.setattr(attention_mybert, "varlen_attn", varlen_attn, raising=False)
    monkeypatch.setattr(mybert.MyBertModel, "_supports_varlen", lambda model, words: True)
    outputs = [model(**batch), model(**flattened(sequences, **BOTH)), causal(**batch)]
    assert calls == [(-1, -1)] * 4 + [(-1, 0)] * 2
    for output, reference in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output.last_hidden_state, reference.last_hidden_state, rtol=0, atol=1e-5)
        torch.testing.assert_close(output.pooler_output, reference.pooler_output, rtol=0, atol=1e-5)


def test_packing_passes_int32_boundaries_to_the_kernel(monkeypatch):
    def takes(device="cuda", dtype=torch.bfloat16, head_size=64, dropout=0.0, capability=(8, 0), cuda="12.8"):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        return attention_mybert.supports_varlen(torch.device(device), dtype, head_size, dropout)

    monkeypatch.setattr(attention_mybert, "HAS_VARLEN_KERNEL", True)
    assert takes() and takes(dtype=torch.float16) and takes(head_size=256) and takes(capability=(9, 0))
    assert not takes("cpu")
    assert not takes(dtype=torch.float32)
    assert not takes(head_size=63) and not takes(head_size=264)
    assert not takes(dropout=0.1)  # the kernel has no dropout
    assert not takes(capability=(7, 5)) and not takes(cuda=None)
    monkeypatch.setattr(attention_mybert, "HAS_VARLEN_KERNEL", False)
    assert not takes()


def without_scale(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False): ...


def with_all(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)): ...


@pytest.mark.parametrize(("kernel", "exists"), [(None, False), (without_scale, False), (with_all, True)])
def test_the_kernel_of_older_torch(kernel, exists, monkeypatch):
    module = None if kernel is None else types.SimpleNamespace(varlen_attn=kernel)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    spec = importlib.util.spec_from_file_location(attention_mybert.__name__, attention_mybert.__file__)
    loaded_again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded_again)
    assert loaded_again.supports_varlen(torch.device("cuda"), torch.bfloat16, 64, 0.0) is exists


# Models--------


def test_outputs_of_one_query_are_contiguous(heads):
    """Callers use `view`."""
    with torch.no_grad():
        outputs = heads("Model").model()(torch.ones(2, 5, dtype=torch.long))
    assert all(tensor.is_contiguous() for tensor in outputs.values())


def test_trainer_gains_without_asking(heads, watch, tokenizer, tmp_path):
    model = heads("ForSequenceClassification").model()
    seen = watch(model.base_model.encoder.layer[0], num_tokens)
    examples = [{"input_ids": [2, 5, 3], "labels": 0}, {"input_ids": [2, 5, 6, 7, 8, 3], "labels": 1}]
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, disable_tqdm=True)
    transformers.Trainer(model, arguments, train_dataset=examples, processing_class=tokenizer).train()
    assert seen == [9]
