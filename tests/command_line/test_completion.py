import shutil
import subprocess
import sys

import pytest

shtab = pytest.importorskip("shtab")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    command = [sys.executable, "-m", "mybert", "completion", "bash"]
    path = tmp_path_factory.mktemp("completion") / "mybert.bash"
    path.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
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
    assert "--no_verify" in completed(script, "mybert", "convert", "bert", "--no")
