"""Trains a small Llama whose answers mean something: `make_trained_model.py PROMPTS FOLDER`.

PROMPTS is tokenpeak/quality/prompts.py: the training text is drawn from the same functions as the questions of the
quality measurement, so that they are mostly answered right, and a damaged layer shows. Nothing is downloaded; the seed
is fixed. It takes some minutes on two cores. The folder appears whole or not at all.
"""

import importlib.util
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
CONTEXT = 2048
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
PHASES = ((96, 24, 650), (256, 10, 200), (2048, 2, 90))
"""Tokens of a sequence, sequences of a step, steps."""
REST = 0.1
"""How much tokens count that follow from nothing."""
PEAK, CIRCUIT_PEAK, OTHER_PEAK = 0.02, 0.002, 0.001
"""Learning rates of matrices, of those of the circuit that is set, and of embeddings and norms."""
HIDDEN, HEAD, CODE = 192, 64, 40
"""Sizes of the residual stream, of a head, and of a token's code."""
THETA, SHARP = 1e6, 1.7


def prompts(path: str) -> ModuleType:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location("prompts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prompts"] = module
    spec.loader.exec_module(module)
    return module


Piece = tuple[str, float]
"""Text and how much its tokens count: an answer follows from what stands before it, most else does not."""


def document(source: ModuleType, random: Random, chars: int) -> list[Piece]:
    """A piece of training text: words said again, questions with their answers, sentences, or a passage."""
    lot = random.random()
    if lot < 0.1:
        return said_again(source, random)
    if lot < 0.13:
        # Seldom: what is known by heart is no language.
        return [(random.choice(source.passages()) + "\n", 0.2)]
    if lot < 0.2:
        return [(" ".join(source.sentence(random) for _ in range(random.randrange(1, 6))) + "\n", REST)]
    if lot < 0.32:
        text, answer = source.long_recall(random, random.randrange(60, max(61, chars)), random)
        return [(text, REST), (f"{answer}\n", 1.0)]
    if lot < 0.55:
        facts, asked = (source.persons if lot < 0.44 else source.codes)(random)
        pieces = [(facts, REST)]
        for question, answer in random.sample(asked, random.randrange(1, 4)):
            pieces += [(question, REST), (f"{answer}\n", 1.0)]
        return pieces
    if lot < 0.85:
        text, answer = source.arithmetic(random)
        sums = [line.partition("=") for line in f"{text}{answer}".split("\n")]
        return [piece for left, _, right in sums for piece in ((f"{left}=", REST), (f"{right}\n", 1.0))]
    text, answer = source.copying(random)
    return [(text, REST), (f"{answer}\n", 1.0)]


def said_again(source: ModuleType, random: Random) -> list[Piece]:
    """Words, and a part of them again from any place: what follows is to be looked up, not counted."""
    words = [source.invented_word(random) for _ in range(random.randrange(4, 14))]
    start = random.randrange(len(words) - 1)
    first, *others = words[start:]
    return [(f"words {' '.join(words)}\nfrom {first}", REST), (f" {' '.join(others)}\n", 1.0)]


def tokenizer(source: ModuleType) -> PreTrainedTokenizerFast:
    """A byte-level BPE in which each digit is a token."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    random = Random(0)
    documents = [document(source, random, 600) for _ in range(3000)]
    bpe.train_from_iterator(["".join(text for text, _ in pieces) for pieces in documents], trainer)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def new_model() -> LlamaForCausalLM:
    """Four layers of grouped-query attention, about 2 million parameters; the first two can look things up already."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=HEAD,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
            bos_token_id=0,
            eos_token_id=1,
            attn_implementation="sdpa",
        )
    )
    look_up(model)
    return model


@torch.no_grad()
def look_up(model: LlamaForCausalLM) -> None:
    """Set an induction circuit: find where the last two tokens stood before, and expect what followed them there.

    A model of this size finds one by itself only after millions of tokens. The residual stream holds codes of the
    token, of the two before it, and of the one that is expected. In the first layer two heads look one and two tokens
    back, by the phases of the rotary embedding; in the second one head compares, in the slow phases, which turn little
    over the context.
    """
    token, before, second, expected = (slice(1 + CODE * place, 1 + CODE * (place + 1)) for place in range(4))
    codes = torch.nn.functional.normalize(torch.randn(VOCABULARY, CODE), dim=1) * CODE**0.5
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    embedding.normal_(0, 0.001)
    embedding[:, 0] = 0.3
    embedding[:, token] = 0.1 * codes
    head.normal_(0, 0.005)
    head[:, expected] = 0.1 * codes
    phases = THETA ** (-torch.arange(HEAD // 2) * 2 / HEAD)
    first, other = (layer.self_attn for layer in model.model.layers[:2])
    for place, (offset, to) in enumerate(((1, before), (2, second))):
        keys, queries = place * HEAD, place * 2 * HEAD
        for matrix, row in ((first.k_proj, keys), (first.q_proj, queries), (first.v_proj, keys)):
            matrix.weight[row : row + HEAD] = 0
        first.k_proj.weight[keys : keys + HEAD // 2, 0] = SHARP
        first.q_proj.weight[queries : queries + HEAD // 2, 0] = SHARP * torch.cos(offset * phases)
        first.q_proj.weight[queries + HEAD // 2 : queries + HEAD, 0] = -SHARP * torch.sin(offset * phases)
        first.v_proj.weight[keys : keys + CODE, token] = torch.eye(CODE)
        first.o_proj.weight[:, queries : queries + HEAD] = 0
        first.o_proj.weight[to, queries : queries + CODE] = 0.055 * torch.eye(CODE)
    other.q_proj.weight[:HEAD] = 0
    other.k_proj.weight[:HEAD] = 0
    for start, ours, theirs in ((HEAD // 4, token, before), (HEAD * 3 // 4, before, second)):
        axes = 3.0**0.5 * torch.linalg.qr(torch.randn(CODE, CODE))[0][: HEAD // 4]
        other.q_proj.weight[start : start + HEAD // 4, ours] = axes
        other.k_proj.weight[start : start + HEAD // 4, theirs] = axes
    other.v_proj.weight[:HEAD] = 0
    other.v_proj.weight[:CODE, token] = torch.eye(CODE)
    other.o_proj.weight[:, :HEAD] = 0
    other.o_proj.weight[expected, :CODE] = 0.1 * torch.eye(CODE)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest semi-orthogonal matrix, roughly, by the Newton-Schulz steps of the optimizer Muon."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal: the matrices of a small model learn in fewer steps than with Adam."""

    def __init__(self, matrices: list[torch.nn.Parameter], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update each matrix from its gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                momentum.mul_(0.95).add_(matrix.grad)
                update = orthogonal(matrix.grad + 0.95 * momentum)
                matrix.mul_(1 - 0.01 * group["lr"])
                matrix.add_(update, alpha=-group["lr"] * max(1.0, matrix.size(0) / matrix.size(1)) ** 0.5)


def batches(
    source: ModuleType, fast: PreTrainedTokenizerFast, length: int, count: int, steps: int, random: Random
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For each step (sequences, length + 1) of tokens and of their weights: documents one after another."""
    needed = count * (length + 1)
    tokens: list[int] = []
    weights: list[float] = []
    for _ in range(steps):
        while len(tokens) < needed:
            pieces = [piece for _ in range(64) for piece in document(source, random, 3 * length)]
            for ids, (_, weight) in zip(fast([text for text, _ in pieces])["input_ids"], pieces, strict=True):
                tokens += ids
                weights += [weight] * len(ids)
        shape = count, length + 1
        yield torch.tensor(tokens[:needed]).view(shape), torch.tensor(weights[:needed]).view(shape)
        tokens, weights = tokens[needed:], weights[needed:]


def train(source: ModuleType, fast: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """The model after all phases."""
    model = new_model()
    circuit, matrices, others = [], [], []
    for name, each in model.named_parameters():
        is_matrix = each.ndim == 2 and "proj" in name
        is_circuit = is_matrix and name.startswith(("model.layers.0.self_attn", "model.layers.1.self_attn"))
        (circuit if is_circuit else matrices if is_matrix else others).append(each)
    optimizers = [
        Muon(matrices, PEAK),
        Muon(circuit, CIRCUIT_PEAK),
        torch.optim.AdamW(others, lr=OTHER_PEAK, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = (PEAK, CIRCUIT_PEAK, OTHER_PEAK)
    random, began, step, last = Random(1), time.process_time(), 0, sum(steps for _, _, steps in PHASES)
    for length, count, steps in PHASES:
        for tokens, weights in batches(source, fast, length, count, steps, random):
            rate = min(1.0, (step + 1) / 50, (last - step) / (0.4 * last))
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * rate
            logits = model(tokens[:, :-1]).logits
            losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
            counted = weights[:, 1:].flatten()
            ((losses * counted).sum() / counted.sum()).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % 20 == 0:
                answers = losses[counted == 1.0].mean().item()
                seconds = time.process_time() - began
                print(f"{step} of {last} steps, {seconds:.0f} s, loss of answers {answers:.3f}", flush=True)
    return model


def main(prompts_file: str, folder: Path) -> None:
    """Write model and tokenizer."""
    source = prompts(prompts_file)
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    fast = tokenizer(source)
    fast.save_pretrained(unfinished)
    train(source, fast).to(torch.bfloat16).save_pretrained(unfinished)
    unfinished.rename(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
