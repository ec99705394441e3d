"""Applications whose losses are compared with those of the same program in stock TensorFlow without IPU calls."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.helpers.graphcore_applications import message_passing
from tests.helpers.graphcore_applications.application import NOTEBOOK, Application
from tests.helpers.graphcore_applications.runs import Done, run
from tests.helpers.graphcore_applications.table import APPLICATIONS

#: Largest relative difference of two losses.
TOLERANCE = 1e-4
#: Losses after which rounding may have grown.
FIRST = 10
#: Losses that at least are compared.
FEWEST = 3


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An application, and what its command has otherwise in stock TensorFlow.

    Attributes:
        application: the command, in float32 and without dropout.
        stock: arguments that the command has besides in stock TensorFlow.
        stock_changes: changes of its files there, beside the application's.
    """

    application: Application
    stock: str = ""
    stock_changes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Compared:
    """The runs of both sides."""

    device: Done
    stock: Done

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """The first losses of device and stock."""
        return list(zip(self.device.losses, self.stock.losses, strict=False))[:FIRST]

    @property
    def difference(self) -> float:
        """The greatest relative difference of two losses of a pair."""
        return max(abs(a - b) / abs(b) for a, b in self.pairs)

    @property
    def agrees(self) -> bool:
        """Whether both ran to their ends, their first losses differ by less than `TOLERANCE`, and the losses fall."""
        whole = self.device.whole and self.stock.whole and len(self.pairs) >= FEWEST
        return whole and self.difference < TOLERANCE and self.device.losses[-1] < self.device.losses[0]

    def __str__(self) -> str:
        if not (self.device.whole and self.stock.whole and self.pairs):
            side = "the device" if not self.device.whole else "stock"
            return f"no result: {side} {(self.stock if self.device.whole else self.device).result()}"
        of_device, of_stock = (f"{done.losses[0]:.6f} to {done.losses[-1]:.6f}" for done in (self.device, self.stock))
        counts = f"the first {len(self.pairs)} of {len(self.device.losses)}"
        return f"{of_device} | {of_stock} | {counts} | {self.difference:.1e}"


def compare(checkout: Path, comparison: Comparison) -> Compared:
    """Runs an application on the device and in stock TensorFlow."""
    application = comparison.application
    changes = dict(application.changes)
    for file, pairs in comparison.stock_changes.items():
        changes[file] = {**changes.get(file, {}), **pairs}
    of_stock = dataclasses.replace(application, sizes=f"{application.sizes} {comparison.stock}", changes=changes)
    return Compared(run(checkout, application, stock=False), run(checkout, of_stock, stock=True))


_NIF = dataclasses.replace(
    APPLICATIONS["neural-image-fields"],
    changes={"nif.py": {r"    if step_ratio > 1:": "    if False:"}},  # an execution of one weight update
)
_UNET = dataclasses.replace(
    APPLICATIONS["unet"],
    # An execution of one weight update.
    sizes=f"{APPLICATIONS['unet'].sizes} --drop-rate 0 --steps-per-execution 8 --num-epochs 10",
)
_DEEPLOB = {
    r"epochs = 20": "epochs = 5",
    r"steps_per_execution = 100": "steps_per_execution = 4",
    r"(saved_model_path = .*deeplob.*)\"\)": r'\g<1>.weights.h5")',  # the only names that Keras 3 takes
}
_SMALL_RESNET = "--synthetic-data host --seed 1 --precision 32.32 --weight-updates-per-epoch 1 --logs-per-epoch 1"
_GROUP_NORM = """--norm-layer '{"name": "group_norm", "num_groups": 4}'"""
#: A tenth of the program's learning rate, after one update with which the loss of ResNet-18 is 0.001, mostly rounding.
_SLOWER = """--lr-schedule-params '{"initial_learning_rate": 0.00001}'"""
_ADGMOM = APPLICATIONS["adgmom"]
_SMALL_ADGMOM = {
    **_ADGMOM.changes["AdGMoM_conf_default.yaml"],
    r"n_steps: \d+": "n_steps: 20",
    r"iterations_per_loop: \d+": "iterations_per_loop: 1",
    r"replication_factor: \d": "replication_factor: 1",
    # Of which the program's copy of its step for CPUs knows nothing.
    r"l1_regularization: [\d.]+": "l1_regularization: 0.0",
    r"l2_regularization: [\d.]+": "l2_regularization: 0.0",
}


def _deeplob(name: str) -> Comparison:
    changes = {NOTEBOOK: _DEEPLOB}
    environment = {"NUM_AVAILABLE_IPU": "1", "CHECKPOINT_DIR": "."}
    return Comparison(dataclasses.replace(APPLICATIONS[name], changes=changes, environment=environment))


def _resnet(accumulation: int, options: str = "") -> Comparison:
    return _residual_network("resnet-8", 10, f"--gradient-accumulation {accumulation} {options}")


def _residual_network(name: str, epochs: int, options: str) -> Comparison:
    sizes = f"{_SMALL_RESNET} --num-epochs {epochs} {options}"
    return Comparison(dataclasses.replace(APPLICATIONS[name], sizes=sizes, says=f"Epoch {epochs}/{epochs}"))


def _resnet_replicas() -> Comparison:
    """Two replicas, whose gradients and losses are the means of both: as accumulation of 2 on one."""
    return dataclasses.replace(_resnet(1, "--num-replicas 2"), stock="--num-replicas 1 --gradient-accumulation 2")


def _pcqm4mv2(accumulation: int) -> Comparison:
    # By default the program draws signs with NumPy while its model is traced: other ones after each trace.
    sizes = "--model.eigv_rand_sign_flip=false --model.epochs=10 --model.lr=5e-4"
    sizes += f" --ipu_opts.gradient_accumulation_factor={accumulation}"
    of_table = APPLICATIONS["pcqm4mv2"]
    changed = dataclasses.replace(of_table, sizes=f"{of_table.sizes} {sizes}", runs_without_ipu=False)
    # Stock TensorFlow divides no gradients of rows.
    return Comparison(changed, stock_changes={"utils.py": {r"( +return \[\()g / ": r"\g<1>tf.convert_to_tensor(g) / "}})


def _pcqm4mv2_replicas() -> Comparison:
    """Two replicas, as accumulation of 2 on one; metrics are otherwise those of the last replica."""
    shown = r'\g<1>model.set_replication_options(replicated_metric_reduction_method="MEAN")\n\g<0>'
    replicas, stock = "--ipu_opts.replicas=2", "--ipu_opts.replicas=1 --ipu_opts.gradient_accumulation_factor=2"
    compared = _pcqm4mv2(1)
    application = compared.application
    changes = {**application.changes, "run_training.py": {r"( +)model\.fit\(": shown}}
    changed = dataclasses.replace(application, sizes=f"{application.sizes} {replicas}", changes=changes)
    return dataclasses.replace(compared, application=changed, stock=stock)


def _message_passing() -> Comparison:
    # Stock TensorFlow divides no gradients of rows, which the program does with those of its other embeddings.
    sizes = f"{message_passing.SIZES} --one_hot_embedding --epochs=10"
    return Comparison(dataclasses.replace(APPLICATIONS["message-passing"], sizes=sizes))


COMPARED: dict[str, Comparison] = {
    "bert-pretraining": Comparison(APPLICATIONS["bert-pretraining"]),
    "bert-squad": Comparison(APPLICATIONS["bert-squad"]),
    "neural-image-fields": Comparison(_NIF),
    "neural-image-fields-accumulation": Comparison(
        dataclasses.replace(_NIF, sizes=f"{_NIF.sizes} --gradient-accumulation-count 4")
    ),
    "unet-pipeline": Comparison(
        _UNET,  # where it runs on one IPU, the program crops by TensorFlow
        stock_changes={"model_utils.py": {r"    if nb_ipus_per_replica > 1:": "    if False:"}},
    ),
    "deeplob-seq2seq": _deeplob("deeplob-seq2seq"),
    "deeplob-attention": _deeplob("deeplob-attention"),
    "resnet-8": _resnet(1),
    "resnet-8-accumulation": _resnet(4),
    "resnet-8-replicas": _resnet_replicas(),
    "resnet-8-group-norm": _resnet(1, _GROUP_NORM),
    "resnet-18-group-norm": _residual_network("resnet-18", 10, f"{_GROUP_NORM} {_SLOWER}"),
    "resnet-50-group-norm": _residual_network("resnet-18", 10, f"--model resnet50 {_GROUP_NORM} {_SLOWER}"),
    "adgmom": Comparison(
        dataclasses.replace(
            _ADGMOM,
            changes={"AdGMoM_conf_default.yaml": _SMALL_ADGMOM},
            compared_loss=r"(?m)^\d+ \t\t [\d.e+-]+ \t ([\d.e+-]+)$",
            runs_without_ipu=True,
        ),
        stock_changes={"AdGMoM_conf_default.yaml": {r"use_ipu: true": "use_ipu: false"}},
    ),
    "pcqm4mv2": _pcqm4mv2(1),
    "pcqm4mv2-accumulation": _pcqm4mv2(3),
    "pcqm4mv2-replicas": _pcqm4mv2_replicas(),
    "message-passing": _message_passing(),
}
