"""Runs Graphcore's applications unchanged, on generated data and with small sizes, and prints a table of the results.

    git clone https://github.com/graphcore/examples
    python -m tests.helpers.graphcore_applications examples                 all of them
    python -m tests.helpers.graphcore_applications examples abc resnet-8    some, by their names in `table.py`
    python -m tests.helpers.graphcore_applications --stock examples         those of `compared.py`, twice each: on the
                                                                            device, and in stock TensorFlow with the
                                                                            IPU's calls taken out; compares the losses
    python -m tests.helpers.graphcore_applications --own-tests examples    vision/cnns' own tests, file by file

`docs/graphcore_code.md` has the tables. Each runs in a copy of its folder. What an application imports and does not
need on its way is stood in for by `STAND_INS`; other packages have to be installed beside this project.
"""
