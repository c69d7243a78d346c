"""Arguments and function of `mybert push`."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from .publish import publish, write_publishable

logger = logging.getLogger(__name__)


@dataclass
class PushArguments:
    """Where a model folder goes on the Hub. The token is that of `hf auth login` or of HF_TOKEN."""

    model: str = field(metadata={"help": "MyBERT model folder; it stays as it is."})
    repo_id: str = field(metadata={"help": "Name of the repository: OWNER/NAME, or NAME for one of your own."})
    private: bool | None = field(
        default=None,
        metadata={
            "help": "Make the repository private, or with false public; by default as set.",
            "nargs": "?",
            "const": True,
        },
    )
    revision: str | None = field(
        default=None, metadata={"help": "Branch to commit to, made if there is none, or a pull request: refs/pr/1."}
    )
    branch: str | None = field(
        default=None, metadata={"help": "Branch to commit to; if there is none, it starts at --revision."}
    )
    create_pr: bool = field(default=False, metadata={"help": "Open a pull request."})
    commit_message: str = field(default="Upload model", metadata={"help": "First line of the commit."})
    output: str | None = field(
        default=None, metadata={"help": "Write the folder that would be uploaded, and upload nothing."}
    )


def push(arguments: PushArguments) -> str:
    """Run `mybert push`: publish a model folder, or with `output` only write what would be published.

    Args:
        arguments: Folder, repository and options.

    Returns:
        Address of the commit or pull request, or the folder that was written.

    Raises:
        ValueError, OSError: As `publish` and `write_publishable`.
    """
    if arguments.output:
        folder = write_publishable(arguments.model, Path(arguments.output), arguments.repo_id)
        logger.info("Wrote %s; nothing was uploaded.", folder)
        return str(folder)
    commit = publish(
        arguments.model,
        arguments.repo_id,
        private=arguments.private,
        revision=arguments.revision,
        branch=arguments.branch,
        create_pr=arguments.create_pr,
        commit_message=arguments.commit_message,
    )
    return str(commit.pr_url or commit.commit_url)
