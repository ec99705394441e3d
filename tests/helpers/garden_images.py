"""Families of models of images, tiny and with random weights, for docs/garden.md."""

from __future__ import annotations

import keras

from examples.garden.convnext import convnext
from tests.helpers.garden_cells import CLASSES, SAMPLES, TASKS, Cell, Data, hub
from tests.helpers.keras_parity import integers, numbers

SIDE = 16


def _images() -> Data:
    return Data(numbers(SAMPLES, SIDE, SIDE, 3), integers(CLASSES, SAMPLES, seed=4))


def _vit() -> keras.Model:
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 16}
    backbone = hub().ViTBackbone(image_shape=(SIDE, SIDE, 3), patch_size=(8, 8), **sizes)
    return hub().ViTImageClassifier(backbone, num_classes=CLASSES, preprocessor=None)


def _resnet() -> keras.Model:
    sizes = {"stackwise_num_filters": [64, 8], "stackwise_num_blocks": [1, 1], "stackwise_num_strides": [1, 2]}
    first = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    backbone = hub().ResNetBackbone(**first, **sizes, block_type="basic_block", image_shape=(SIDE, SIDE, 3))
    return hub().ResNetImageClassifier(backbone, num_classes=CLASSES, preprocessor=None)


def _efficientnet() -> keras.Model:
    backbone = hub().EfficientNetBackbone(
        stackwise_kernel_sizes=[3, 3],
        stackwise_num_repeats=[1, 1],
        stackwise_input_filters=[8, 8],
        stackwise_output_filters=[8, 16],
        stackwise_expansion_ratios=[1, 4],
        stackwise_squeeze_and_excite_ratios=[0.0, 0.25],
        stackwise_strides=[1, 2],
        stackwise_block_types=["fused", "unfused"],
        width_coefficient=1.0,
        depth_coefficient=1.0,
        dropout=0.0,
        num_features=16,
        input_shape=(SIDE, SIDE, 3),
    )
    return hub().EfficientNetImageClassifier(backbone, num_classes=CLASSES, preprocessor=None)


def _mobilenet() -> keras.Model:
    backbone = hub().MobileNetBackbone(
        stackwise_expansion=[[8], [16]],
        stackwise_num_blocks=[1, 1],
        stackwise_num_filters=[[8], [8]],
        stackwise_kernel_size=[[3], [3]],
        stackwise_num_strides=[[1], [2]],
        stackwise_se_ratio=[[None], [0.25]],
        stackwise_activation=[["relu"], ["hard_swish"]],
        stackwise_padding=[[1], [1]],
        input_num_filters=8,
        output_num_filters=16,
        depthwise_filters=8,
        depthwise_stride=1,
        depthwise_residual=False,
        last_layer_filter=16,
        image_shape=(SIDE, SIDE, 3),
    )
    return hub().MobileNetImageClassifier(backbone, num_classes=CLASSES, num_features=16, preprocessor=None)


def _convnext() -> keras.Model:
    return convnext(depths=(1, 1), widths=(8, 16), classes=CLASSES, image_shape=(SIDE, SIDE, 3), layer_scale=0.5)


IMAGES: tuple[Cell, ...] = (
    Cell("ViT", TASKS[7], _vit, _images),
    Cell("ResNet", TASKS[7], _resnet, _images),
    Cell("EfficientNet", TASKS[7], _efficientnet, _images),
    Cell("MobileNet", TASKS[7], _mobilenet, _images),
    Cell("ConvNeXt", TASKS[7], _convnext, _images, source="garden"),
)
