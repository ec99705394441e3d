"""Runs an application in stock TensorFlow, with the IPU's calls taken out: `launch.py` is the command."""
