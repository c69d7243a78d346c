"""Private names of libraries that the package uses: each is listed here, with the reason why no public one does."""

import ast
import importlib
import inspect
import re
from enum import Enum
from pathlib import Path

from transformers import Trainer

import mybert

# Documented in spite of the underscore, or made by Python and torch for a class.
PUBLIC = {"_exit", "_replace", "_asdict", "_fields", "_typeshed", "_abc_impl", "_is_protocol", "_backward_cls"}
# Reason -> names that are read, without those that the package also defines.
USED = {
    "a fast path is taken only where hooks and transformations of the usual one would see nothing": (
        "_are_functorch_transforms_active _backward_hooks _backward_pre_hooks _forward_hooks _forward_pre_hooks "
        "_global_backward_hooks _global_backward_pre_hooks _global_forward_hooks _global_forward_pre_hooks"
    ),
    "oneDNN's operators, and whether a weight has changed since it was reordered for them": (
        "_is_mkldnn_bf16_supported _linear_pointwise _reorder_linear_weight _version"
    ),
    "tqdm has no public list of its open bars": "_instances",
    "transformers' register_for_auto_class cannot be undone": "_auto_class",
}
MAX_UNDOCUMENTED = 15  # names of `USED`: fewer as libraries offer public ones
DOCUMENTED = {
    "torch's documentation names them: a check without waiting for the GPU, and settings of torch.compile": (
        "_assert_async _dynamo _inductor"
    ),
    "transformers' documentation names them: the attention function, the settings of a pipeline's call": (
        "_attn_implementation _batch_size _forward_params _postprocess_params _preprocess_params"
    ),
}
# Reason -> names of a library's class that an own class derived from it replaces. `Trainer` has none.
REPLACED = {
    "transformers' documented properties and methods of a model class": (
        "_can_record_outputs _init_weights _keys_to_ignore_on_load_unexpected _no_split_modules "
        "_supports_attention_backend _supports_flash_attn _supports_flex_attn _supports_sdpa _tied_weights_keys"
    ),
    "transformers' documented methods and properties of a pipeline": (
        "_forward _sanitize_parameters _load_feature_extractor _load_image_processor _load_processor _load_tokenizer "
        "_load_video_processor"
    ),
    "all ways to call or load a tokenizer go through them": "_encode_plus _from_pretrained _save_pretrained",
    "evaluate's documented methods of a module": "_compute _info",
    "argparse's and HfArgumentParser's flags, choices and help have no other hooks": (
        "_check_value _format_action_invocation _get_help_string"
    ),
}


def named(table: dict[str, str]) -> set[str]:
    return {name for names in table.values() for name in names.split()}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_in(tree: ast.AST) -> set[str]:
    """Names that a file defines: functions, classes, variables, and attributes of `self`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def used_in(tree: ast.AST) -> set[str]:
    """Private names that a file reads as attributes (also by `getattr`) or imports absolutely."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Import):
            found.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.update([*(node.module or "").split("."), *(alias.name for alias in node.names)])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("attr"):
            found.update(word.value for word in node.args[1:2] if isinstance(word, ast.Constant))
    return set(filter(is_private, found))


def is_trainer(node: ast.ClassDef) -> bool:
    return any("Trainer" in ast.unparse(base) and "Callback" not in ast.unparse(base) for base in node.bases)


def replaced(trees: dict[Path, ast.AST]) -> set[str]:
    """Private names in own classes that a library's class defines, too."""
    assert mybert.MyBertModel  # so that transformers knows the models before their files are imported one by one
    found = set()
    for path, tree in trees.items():
        name = ".".join(["mybert", *path.with_suffix("").parts]).removesuffix(".__init__")
        if path.stem in ("__main__", "setup"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:  # of an extra
            continue
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == name and not issubclass(kind, Enum):
                bases = [base for base in kind.__mro__ if not base.__module__.startswith("mybert.")]
                of_bases = {name for base in bases for name in vars(base)}
                own = set(vars(kind)) & defined_in(tree)  # not what a call has set, such as a push
                found |= set(filter(is_private, own)) & of_bases
    return found - PUBLIC


def test_private_names_of_libraries_are_listed(trees):
    own = set().union(*map(defined_in, trees.values()))
    used = set().union(*map(used_in, trees.values())) - own - PUBLIC
    listed = named(USED) | named(DOCUMENTED)
    assert (used - listed, listed - used) == (set(), set())  # new ones, those that are gone
    assert len(named(USED)) <= MAX_UNDOCUMENTED


def test_private_names_of_libraries_that_are_replaced_are_listed(trees):
    assert not replaced(trees) - named(REPLACED)


def test_no_private_name_of_trainer_is_used_or_replaced(trees):
    private = set(re.findall(r"\bself\.(_[a-z]\w+)", inspect.getsource(Trainer)))
    for path, tree in trees.items():
        trainers = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and is_trainer(node)]
        names = set().union(*((used_in(node) | defined_in(node)) & private for node in trainers))
        assert not names, f"{path}: {sorted(names)}"
