"""Table of the commands of Graphcore's applications that are run."""

from __future__ import annotations

import dataclasses

from tests.helpers.graphcore_applications import bert, message_passing, pcqm4mv2
from tests.helpers.graphcore_applications.application import NOTEBOOK, Application

_ABC = "ai_for_simulation/abc_covid_19/tensorflow2"
_CNNS = "vision/cnns/tensorflow2"
_PROBABILITY = ("tensorflow-probability", "tf_keras")
_SMALL_ABC = "--tolerance 1e6 --n-samples-target 5 --n-samples-per-batch 1000 --samples-filepath samples.txt"
_SMALL_CNN = "--synthetic-data host --weight-updates-per-epoch 2 --seed 1"
_CNN_PACKAGES = ("tensorflow-datasets", "tf_keras")
_SPLIT_CNN = """--num-replicas 2 --pipeline-splits conv3_block1_post_addition_relu --loss-scaling 128 \
--norm-layer '{"name": "group_norm", "num_groups": 4}' --num-epochs 2 --gradient-accumulation 4"""
_RESNET_8 = "train.py --model cifar_resnet8 --num-epochs 6 --precision 16.16 --micro-batch-size 8 --validation False"
_LOGGED_LOSS = r"'loss: ([\d.]+) '"
_SMALL_ADGMOM = {
    r"n_samples: \d+": "n_samples: 200",
    r"n_steps: \d+": "n_steps: 40",
    r"iterations_per_loop: \d+": "iterations_per_loop: 10",
    r"hidden_layers: .*": "hidden_layers: [16, 16]",
    r"batch_size: \d+": "batch_size: 20",
    r"batch_size_hedge: \d+": "batch_size_hedge: 50",
    r"n_critics: \d+": "n_critics: 5",
}
_UNET = "vision/unet_medical/tensorflow2"
_UNET_PACKAGES = ("Pillow", "scikit-learn", "tf_keras")
_UNET_TRAINING = (
    "--nb-ipus-per-replica 4 --micro-batch-size 1 --gradient-accumulation-count 24 --train --learning-rate 0.0024"
)
_SMALL_UNET = "--host-generated-data --num-epochs 6 --gradient-accumulation-count 8 --steps-per-execution 16"
_UNET_CHANGES = {
    "dataset.py": {
        r"( +X.*)572, 572\)\)\.astype": r"\g<1>220, 220)).astype",
        r"(.*)388, 388, args": r"\g<1>36, 36, args",
    },
    "model.py": {
        r"( +)inputs = Input\(\(572, 572, 1\)\)": r"\g<1>inputs = Input((220, 220, 1))",
        r"( +)crop_sizes = .*": r"\g<1>crop_sizes = [40, 24, 16, 12]",
        r"( +)filters = .*": r"\g<1>filters = [8, 16, 32, 64, 128]",
    },
}
#: The program's `crop.cpp`, in Python.
_CROP = """
import tensorflow as tf
import ipu_tf

def crop(x, attributes):
    start = int(x.shape[1] * (1 - float(attributes)) / 2)
    return x[:, start : x.shape[1] - start, start : x.shape[1] - start, :]

def crop_gradient(gradients, inputs, outputs):
    border = (inputs[0].shape[1] - outputs[0].shape[1]) // 2
    return tf.pad(gradients[0], [[0, 0], [border, border], [border, border], [0, 0]])

ipu_tf.register_user_op("libcustom_op.so", "Build", crop, crop_gradient)
"""
_UNET_TRAINED = Application(
    _UNET,
    f"main.py {_UNET_TRAINING}",
    _SMALL_UNET,
    _UNET_PACKAGES,
    keras_2=True,
    changes=_UNET_CHANGES,
    user_ops=_CROP,
    says="Training complete",
    loss=r"s/step - loss: ([\d.]+)",
)
_DEEPLOB = Application(
    "finance/deeplob/tensorflow2",
    "",
    packages=("scikit-learn",),
    changes={NOTEBOOK: {r"epochs = 20": "epochs = 10", r"steps_per_execution = 100": "steps_per_execution = 4"}},
    data="""
import zipfile
import numpy as np
random = np.random.default_rng(0)
with zipfile.ZipFile("data.zip", "w") as archive:
    for part, number, count in [("Train", 7, 2000), ("Test", 7, 250), ("Test", 8, 250), ("Test", 9, 250)]:
        prices = random.normal(size=count).cumsum()
        orders = prices + 0.1 * random.normal(size=(144, count))
        labels = np.digitize(np.gradient(prices), (-0.5, 0.5)) + 1
        name = f"{part}_Dst_NoAuction_DecPre_CF_{number}.txt"
        np.savetxt(name, np.vstack([orders, *[labels] * 5]))
        archive.write(name)
""",
    says="classification_report",
    loss=r"24/24[^\n]*- loss: ([\d.]+)\n",
)

APPLICATIONS: dict[str, Application] = {
    "abc": Application(_ABC, "ABC_IPU.py", _SMALL_ABC, _PROBABILITY, says="Time per run"),
    "abc-2-replicas-chunks": Application(
        _ABC,
        "ABC_IPU.py --replication-factor 2 --enqueue-chunk-size 100",
        _SMALL_ABC,
        _PROBABILITY,
        says="Time per run",
    ),
    "adgmom": Application(
        "probability/adversarial_generalized_method_of_moments/tensorflow2",
        "tf2_AdGMoM.py",
        packages=(*_PROBABILITY, "scikit-learn"),
        keras_2=True,
        changes={"AdGMoM_conf_default.yaml": _SMALL_ADGMOM},
        says="Iterations",
    ),
    "resnet-8": Application(
        _CNNS,
        f"{_RESNET_8} --half-partials True --gradient-accumulation 8 --logs-per-epoch 1",
        _SMALL_CNN,
        _CNN_PACKAGES,
        keras_2=True,
        says="Epoch 6/6",
        loss=_LOGGED_LOSS,
    ),
    "resnet-8-replicas-pipeline-group-norm": Application(
        _CNNS,
        f"{_RESNET_8} --half-partials True --logs-per-epoch 1 {_SPLIT_CNN}",
        _SMALL_CNN,
        _CNN_PACKAGES,
        keras_2=True,
        says="Epoch 2/2",
        loss=_LOGGED_LOSS,
    ),
    "resnet-18": Application(
        _CNNS,
        "train.py --model resnet18 --dataset cifar10 --precision 16.16 --micro-batch-size 4 --validation False",
        f"{_SMALL_CNN} --num-epochs 2 --gradient-accumulation 4 --logs-per-epoch 1",
        _CNN_PACKAGES,
        keras_2=True,
        says="Epoch 2/2",
        loss=_LOGGED_LOSS,
    ),
    "unet": dataclasses.replace(_UNET_TRAINED, sizes=f"{_SMALL_UNET} --dtype float32 --partials-type float"),
    "unet-float16": dataclasses.replace(_UNET_TRAINED, command=f"main.py --dtype float16 {_UNET_TRAINING}"),
    "unet-inference": Application(
        _UNET,
        "main.py --nb-ipus-per-replica 1 --micro-batch-size 2 --steps-per-execution 400 --infer --host-generated-data "
        "--benchmark",
        "--steps-per-execution 4",
        _UNET_PACKAGES,
        keras_2=True,
        changes=_UNET_CHANGES,
        says="Inference complete",
    ),
    "deeplob-seq2seq": dataclasses.replace(_DEEPLOB, command="Multi-Horizon-DeepLOBSeq2Seq-training.ipynb"),
    "deeplob-attention": dataclasses.replace(_DEEPLOB, command="Multi-Horizon-DeepLOBAttention-training.ipynb"),
    "neural-image-fields": Application(
        "vision/neural_image_fields/tensorflow2",
        "train_nif.py --input Mandrill_portrait_2_Berlin_Zoo.jpg --disable-psnr",
        "--train-samples 2048 --epochs 4",
        ("opencv-python", "python-magic", "tf_keras"),
        keras_2=True,
        says="Trained NIF",
        loss=r"Loss: ([\d.e-]+)",
    ),
    "message-passing": message_passing.MESSAGE_PASSING,
    "pcqm4mv2": pcqm4mv2.PCQM4MV2,
    "bert-pretraining": bert.PRETRAINING,
    "bert-squad": bert.SQUAD,
}
