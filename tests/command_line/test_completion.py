import contextlib
import shutil
import subprocess

import pytest

from mybert.command_line.flags import CompletionSettings, print_completion

shtab = pytest.importorskip("shtab")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "mybert.bash"
    with path.open("w") as file, contextlib.redirect_stdout(file):
        print_completion(CompletionSettings(shell="bash"))  # `main` would leave its output to the logger
    return path


def completed(script, *words):
    """What bash offers for the last word."""
    line = " ".join(words)
    shell = f"""source {script}
COMP_WORDS=({" ".join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; COMP_LINE={line!r}
COMP_POINT={len(line)}; $(complete -p mybert | grep -oP "(?<=-F )\\S+") mybert {words[-1]!r} {words[-2]!r}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    return set(subprocess.run(["bash", "-c", shell], capture_output=True, text=True).stdout.split())


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_flags_and_choices(script):
    assert completed(script, "mybert", "pret") == {"pretrain"}
    assert completed(script, "mybert", "convert", "") >= {"google", "to-google", "onnx"}
    assert completed(script, "mybert", "pretrain", "--model_s") == {"--model_size"}
    assert completed(script, "mybert", "pretrain", "--objective", "mlm") == {"mlm", "mlm+nsp", "mlm+sop"}
    assert completed(script, "mybert", "completion", "b") == {"bash"}
    assert "--no_verify" in completed(script, "mybert", "convert", "bert", "--no")


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    "words",
    ["predict", "predict model", "predict model a.txt", "distill", "card", "pretrain --text", "distill --unlabeled"],
)
def test_bash_completes_files_where_a_command_takes_them(script, tmp_path, monkeypatch, words):
    (tmp_path / "texts.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert completed(script, "mybert", *words.split(), "te") == {"texts.txt"}
