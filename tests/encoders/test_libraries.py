"""Encoders that are sped up, inside transformers' and other libraries' classes."""

import copy

import pytest
import torch
from transformers import AutoModel, Trainer, TrainingArguments, pipeline

import mybert
from mybert.encoders import ENCODER_TYPES
from mybert.encoders.fast_linear import FastLinear

TEXTS = ["the cat sat on a mat .", "a dog ran", "it was a very happy tree and the cat slept under it .", "fish"]


@pytest.fixture
def folder(pair, tokenizer, tmp_path):
    """(Type, head) -> the folder of a tiny model with a tokenizer; the tokenizer's padding token is the model's."""

    def make(encoder_type, head):
        models = pair(encoder_type, head, pad_token_id=0)
        path = tmp_path / f"{encoder_type}-{head}"
        models.stock.save_pretrained(path)
        words = copy.deepcopy(tokenizer)
        if "token_type_ids" not in models.stock.forward.__code__.co_varnames and encoder_type not in (
            "bert",
            "electra",
        ):
            words.model_input_names = ["input_ids", "attention_mask"]
        words.save_pretrained(path)
        return path

    return make


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize(
    ("task", "head"),
    [
        ("text-classification", "ForSequenceClassification"),
        ("token-classification", "ForTokenClassification"),
        ("feature-extraction", "Model"),
        ("fill-mask", "ForMaskedLM"),
        ("question-answering", "ForQuestionAnswering"),
    ],
)
def test_speed_up_pipeline_gives_stock_answers(encoder_type, task, head, pair, tokenizer, packed):
    models = pair(encoder_type, head, pad_token_id=0)
    words = copy.deepcopy(tokenizer)
    if encoder_type not in ("bert", "electra"):
        words.model_input_names = ["input_ids", "attention_mask"]
    texts = [text.replace("a", "[MASK]", 1) for text in TEXTS[:3]] if task == "fill-mask" else TEXTS
    if task == "question-answering":
        texts = [{"question": "a dog", "context": text} for text in TEXTS]
    answers = []
    for model in (models.stock, models.fast):
        answers.append(pipeline(task, model=model, tokenizer=words)(texts, batch_size=4))
    assert packed.value
    if task == "feature-extraction":  # of padding, too
        lengths = [len(words(text)["input_ids"]) for text in texts]
        answers = [[rows[0][:length] for rows, length in zip(answer, lengths, strict=True)] for answer in answers]
    assert approximate(answers[0]) == answers[1]


def approximate(answers):
    """Answers that are equal to others with nearly the same numbers."""
    if isinstance(answers, dict):
        return {name: approximate(value) for name, value in answers.items()}
    if isinstance(answers, (list, tuple)):
        return [approximate(answer) for answer in answers]
    is_number = hasattr(answers, "__float__") and not isinstance(answers, int)
    return pytest.approx(float(answers), abs=1e-4) if is_number else answers


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_trainer_gives_stock_losses(encoder_type, pair, tmp_path, packed):
    models = pair(encoder_type, "ForSequenceClassification")
    batch = models.batch("right")
    rows = [{name: value[row] for name, value in batch.items()} | {"labels": row % 3} for row in range(5)]
    losses = []
    for model in (models.stock, models.fast):
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=3,
            per_device_train_batch_size=3,
            learning_rate=1e-1,
            optim="sgd",
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
        trainer.train()
        losses.append([log["loss"] for log in trainer.state.log_history if "loss" in log])
        losses[-1].append(trainer.evaluate()["eval_loss"])
    assert packed.value
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    for (name, expected), parameter in zip(models.stock.named_parameters(), models.fast.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, atol=1e-3, rtol=1e-3, msg=name)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_speed_up_sentence_transformer_gives_stock_vectors(encoder_type, pooling, folder, packed, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(folder(encoder_type, "Model")))
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling)]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    expected = model.encode(TEXTS, convert_to_tensor=True)
    assert not packed.value
    assert mybert.speed_up(model, check=True) is model
    torch.testing.assert_close(model.encode(TEXTS, convert_to_tensor=True), expected, atol=1e-5, rtol=1e-5)
    assert packed.value
    model.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert not any(type(module) is FastLinear for module in again.modules())
    torch.testing.assert_close(again.encode(TEXTS, convert_to_tensor=True), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_cross_encoder_gives_stock_scores(encoder_type, folder, packed):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.CrossEncoder(str(folder(encoder_type, "ForSequenceClassification")), device="cpu")
    pairs = [(text, TEXTS[0]) for text in TEXTS]
    expected = model.predict(pairs, convert_to_tensor=True)
    torch.testing.assert_close(
        mybert.speed_up(model).predict(pairs, convert_to_tensor=True), expected, atol=1e-5, rtol=1e-5
    )
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize("order", ["before", "after"])
def test_speed_up_adapter_gives_stock_outputs_and_gradients(encoder_type, order, pair, agree, packed, tmp_path):
    peft = pytest.importorskip("peft")
    models = pair(encoder_type, "ForSequenceClassification")
    adapter = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False, lora_dropout=0.0)
    both = []
    for model in (models.stock, models.fast if order == "before" else copy.deepcopy(models.stock)):
        torch.manual_seed(0)
        both.append(peft.get_peft_model(model, copy.deepcopy(adapter)).train())
    stock, fast = both[0], mybert.speed_up(both[1])
    agree(stock, fast, models.batch("left", labels=True), gradients=True)
    assert packed.value
    fast.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(mybert.restore(fast.get_base_model())), tmp_path)
    merged = mybert.speed_up(copy.deepcopy(fast).merge_and_unload())
    for model in (again, merged):
        agree(stock.eval(), model.eval(), models.batch("right"), tolerance=1e-4)


def test_speed_up_prompt_tuning_gives_stock_outputs(pair, packed):
    peft = pytest.importorskip("peft")
    outputs = []
    models = pair("roberta", "ForSequenceClassification", max_position_embeddings=64)
    for model in (models.stock, models.fast):
        torch.manual_seed(0)
        settings = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=4)
        outputs.append(peft.get_peft_model(model, settings)(**models.batch("right")).logits)
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)
    assert packed.value


def test_speed_up_model_with_offloaded_layers_gives_stock_outputs(pair, agree):
    from accelerate import cpu_offload

    models = pair("bert", "ForSequenceClassification")
    cpu_offload(models.fast, execution_device=torch.device("cpu"))
    agree(models.stock, models.fast, models.batch("right"))
    agree(models.stock, mybert.restore(models.fast), models.batch("right"))


def test_speed_up_model_of_remote_code_or_subclass_is_sped_up(pair, agree, packed):
    models = pair("roberta", "Model")

    class Renamed(type(models.stock)):
        pass

    renamed = Renamed(models.stock.config).eval()
    renamed.load_state_dict(models.stock.state_dict())
    agree(models.stock, mybert.speed_up(renamed), models.batch("right"))
    assert type(AutoModel.from_config(models.stock.config)) is type(models.stock)
