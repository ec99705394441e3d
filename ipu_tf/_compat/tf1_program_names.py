"""Names and keywords that tell a TensorFlow 1 program from a TensorFlow 2 program."""

from __future__ import annotations

#: Names that nothing but a graph run by hand has a use for. Today's `tensorflow` module has none of them.
GRAPH_MODE_NAMES = frozenset(
    {
        "InteractiveSession",
        "Session",
        "global_variables_initializer",
        "initialize_all_variables",
        "local_variables_initializer",
        "placeholder",
        "placeholder_with_default",
    }
)

#: More names that today's `tensorflow` module has not; on `tf.compat.v1` they serve TensorFlow 2 as well.
FORMER_NAMES = GRAPH_MODE_NAMES | {
    "ConfigProto",
    "GraphKeys",
    "add_to_collection",
    "app.run",
    "contrib",
    "get_collection",
    "get_default_graph",
    "get_default_session",
    "get_variable",
    "global_variables",
    "layers",
    "logging.set_verbosity",
    "nn.dynamic_rnn",
    "nn.rnn_cell",
    "nn.static_rnn",
    "summary.FileWriter",
    "summary.merge_all",
    "random_normal",
    "random_uniform",
    "set_random_seed",
    "to_float",
    "to_int32",
    "train.AdamOptimizer",
    "train.GradientDescentOptimizer",
    "train.MomentumOptimizer",
    "train.RMSPropOptimizer",
    "train.Saver",
    "train.exponential_decay",
    "train.get_global_step",
    "train.get_or_create_global_step",
    "train.polynomial_decay",
    "trainable_variables",
    "truncated_normal_initializer",
    "variable_scope",
}

#: Keywords that today's functions do not take, whatever function has them.
FORMER_KEYWORDS = frozenset({"keep_dims", "keep_prob", "reduction_indices", "squeeze_dims"})

#: Names that only a program for TensorFlow 2 has a use for.
EAGER_MODE_NAMES = frozenset({"GradientTape", "function"})

#: Functions by which a program settles the behaviour itself.
SETTLING_NAMES = frozenset(
    {"disable_eager_execution", "disable_v2_behavior", "enable_eager_execution", "enable_v2_behavior"}
)
