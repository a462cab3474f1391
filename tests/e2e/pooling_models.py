"""Write a tiny model of embeddings and a tiny reranker, of random weights, with the engine's own Python.

    ENGINE/bin/python pooling_models.py FOLDER WORDS

WORDS is a file of English words, each of which gets to be one token, as in the vocabularies of such models. FOLDER gets
`embedder` (BertModel) and `reranker` (BertForSequenceClassification of one label). Nothing is downloaded.
"""

import string
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast, PreTrainedModel

CONTEXT = 512


def vocabulary(words: list[str]) -> list[str]:
    """Special tokens, letters, digits and the words."""
    letters = string.ascii_lowercase
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    known = [*special, *letters, *(f"##{each}" for each in letters), *string.digits]
    return list(dict.fromkeys([*known, *(word.lower() for word in words)]))


def write(folder: Path, model: type[PreTrainedModel], words: list[str], **more: int) -> None:
    """One model with its tokenizer."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=CONTEXT)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=CONTEXT,
        **more,
    )
    model(config).save_pretrained(folder)


if __name__ == "__main__":
    target, known = Path(sys.argv[1]), vocabulary(Path(sys.argv[2]).read_text().split())
    write(target / "embedder", BertModel, known)
    write(target / "reranker", BertForSequenceClassification, known, num_labels=1)
