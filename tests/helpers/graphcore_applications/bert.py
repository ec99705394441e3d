"""What nlp/bert needs: sizes, a tokenizer."""

from __future__ import annotations

from tests.helpers.graphcore_applications.application import Application

_BERT = {
    "folder": "nlp/bert/tensorflow2",
    "packages": ("transformers==4.18.0, whose imports of tensorflow.python.keras lead to tf_keras", "pydantic<2"),
    "keras_2": True,
    "environment": {"USE_TORCH": "0"},
    "loss": r"'loss: ([\d.]+) '",
}
_FLOAT32 = {r'( +policy = .*)"float16"': r'\g<1>"float32"'}
#: In both of the configurations of the program's tests.
_SMALL = {
    r' +"hidden_size": \d+': '"hidden_size": 32',
    r' +"intermediate_size": \d+': '"intermediate_size": 64',
    r' +"hidden_dropout_prob": [\d.]+': '"hidden_dropout_prob": 0.0',
    r' +"replicas": \d+': '"replicas": 1',
}
#: In place of the tokenizer that the program loads from a hub by its name: one of the words of its generated data.
_TOKENIZER = """
import json
from pathlib import Path
folder = Path("bert-base-uncased")
folder.mkdir()
text = "squad is a question answer dataset . there are loads of questions . what is squad ?"
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(text.split())]
(folder / "vocab.txt").write_text("\\n".join(words))
(folder / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": len(words)}))
(folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 32, "do_lower_case": True}))
"""

PRETRAINING = Application(
    command="run_pretraining.py --config tests/pretrain_tiny_test.json --dataset-dir data_utils/wikipedia/",
    changes={
        "run_pretraining.py": _FLOAT32,
        "tests/pretrain_tiny_test.json": {
            **_SMALL,
            r' +"total_num_train_samples": \d+': '"total_num_train_samples": 120',
            r' +"loss_scaling": \d+': '"loss_scaling": null',
        },
    },
    says="Saving checkpoint",
    **_BERT,  # type: ignore[arg-type]
)
SQUAD = Application(
    command="run_squad.py --config tests/squad_tiny_test.json --generated-dataset true",
    changes={
        "run_squad.py": _FLOAT32,
        "data_utils/squad_v1/load_squad_data.py": {r"    num_generated = \d+": "    num_generated = 240"},
        "tests/squad_tiny_test.json": {
            **_SMALL,
            r' +"attention_probs_dropout_prob": [\d.]+': '"attention_probs_dropout_prob": 0.0',
            r' +"grad_acc_steps_per_replica": \d+': '"grad_acc_steps_per_replica": 6',
            r' +"global_batches_per_log": \d+': '"global_batches_per_log": 1',
        },
    },
    data=_TOKENIZER,
    says="exact_match",
    **_BERT,  # type: ignore[arg-type]
)
