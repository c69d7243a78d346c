"""Initial word embeddings of a new student, from the principal components of the teacher's."""

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

_DEVIATION = 3  # times that of random weights, so that words outweigh the position embeddings added to them


@torch.no_grad()
def begin_with_teacher(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokenizer_of_teacher: PreTrainedTokenizerBase,
) -> int:
    """Initialize word embeddings with the teacher's principal components; returns the number of common pieces."""
    known = tokenizer_of_teacher.get_vocab()
    both = [(own, known[piece]) for piece, own in sorted(tokenizer.get_vocab().items()) if piece in known]
    if not both:
        raise ValueError("teacher_embeddings is set, but the vocabularies of student and teacher share no piece.")
    own, theirs = torch.tensor(both).T
    weights = student.get_input_embeddings().weight
    states = teacher.get_input_embeddings().weight[theirs.to(teacher.device)].double()
    states = states - states.mean(0)
    _, directions = torch.linalg.eigh(states.T @ states)  # the one with the largest variance is the last
    width = min(weights.shape[1], states.shape[1])
    found = torch.zeros(len(own), weights.shape[1], dtype=torch.float64, device=states.device)
    found[:, :width] = states @ directions.flip(1)[:, :width]
    length = _DEVIATION * student.config.initializer_range * weights.shape[1] ** 0.5
    found *= length / found.norm(dim=1).mean()
    # Embeddings of pieces that the teacher lacks do not change.
    weights[own.to(weights.device)] = found.to(weights)
    return len(both)
