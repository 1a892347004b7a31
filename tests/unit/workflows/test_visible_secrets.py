"""Secrets on a command line are named, and never repeated."""

import pytest

from costgpu.workflows.runs.request import RunRequest
from costgpu.workflows.runs.visible_secrets import visible_secrets


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (RunRequest(env=("API_TOKEN=s3cret",)), ["-e API_TOKEN"]),
        (RunRequest(env=("API_TOKEN", "EPOCHS=3", "TOKENIZERS_PARALLELISM=false")), []),
        (RunRequest(command=("train.py", "--api-key=s3cret")), ["--api-key"]),
        (RunRequest(command=("train.py", "--hf_token", "s3cret", "--lr", "1")), ["--hf_token"]),
        (RunRequest(command=("train.py", "--max-tokens", "512", "--key-dim=4", "--use-token", "--lr=1")), []),
        (RunRequest(command=("train.py", "https://me:s3cret@host/x")), ["An argument"]),
        (RunRequest(setup="pip install git+https://me:s3cret@host/x"), ["--setup"]),
        (RunRequest(setup="pip install -r requirements.txt"), []),
    ],
)
def test_what_looks_like_a_secret(request_: RunRequest, names: list[str]) -> None:
    found = list(visible_secrets(request_))
    assert len(found) == len(names), found
    for (words, advice), name in zip(found, names, strict=True):
        assert name in words
        assert advice
        assert "s3cret" not in words + advice
